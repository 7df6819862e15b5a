"""The process that trains: its memory, threads, random numbers, signals and parent."""

import ctypes
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

import numba
import torch
from threadpoolctl import threadpool_limits

logger = logging.getLogger(__name__)

# Parameters of glibc's mallopt.
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4


class Interrupted(KeyboardInterrupt):
    """Training was stopped by a signal; its state is saved if there are checkpoints."""


@dataclass
class Signals:
    """The signals that have arrived since training began."""

    n_interrupts: int = 0  # Ctrl-C
    last: int | None = None

    def stopping(self) -> bool:
        return self.last is not None

    def finishing(self) -> bool:
        return self.n_interrupts >= 2


@contextmanager
def interruption() -> Iterator[Signals]:
    """Yield the signals as they arrive: Ctrl-C or SIGTERM stops, a second Ctrl-C finishes early.

    A third Ctrl-C does not wait for the step to end.
    """
    signals = Signals()

    def note(number: int, frame: FrameType | None) -> None:
        signals.last = number
        signals.n_interrupts += number == signal.SIGINT
        if signals.n_interrupts > 2:
            raise KeyboardInterrupt
        logger.warning(
            "finishing after this step with the best epoch so far, or stopping if there is none; "
            "press Ctrl-C again to stop now"
            if signals.finishing()
            else "stopping after this step; press Ctrl-C again to keep the best epoch so far as a "
            "finished run"
        )

    if threading.current_thread() is not threading.main_thread():
        yield signals  # only the main thread receives signals
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, note) for number in numbers]
    try:
        yield signals
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    if signals.last is not None and not signals.finishing():
        signal.raise_signal(signals.last)  # it came too late to stop between two steps


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch inside the block, and restore its random state afterwards."""
    # On every device: manual_seed seeds them all.
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


@contextmanager
def steady_threads() -> Iterator[None]:
    """Give torch and the compiled kernels the same, constant number of threads.

    If both use the same OpenMP library, setting one thread count also changes the other. Sums are
    rounded differently with another number of threads, so a resumed run would differ from one that
    was never stopped.
    """
    before, kernels_before = torch.get_num_threads(), numba.get_num_threads()
    number = min(before, numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    set_threads(number)
    try:
        yield
    finally:
        numba.set_num_threads(kernels_before)
        torch.set_num_threads(before)


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread, so that figures do not depend on the number of cores.

    The order in which threads sum gradients depends on how many there are. Very small networks are
    also faster with one.
    """
    before, kernels_before = torch.get_num_threads(), numba.get_num_threads()
    with threadpool_limits(1):
        # Both: if they use the same OpenMP library, setting one also changes the other.
        set_threads(1)
        try:
            yield
        finally:
            numba.set_num_threads(kernels_before)
            torch.set_num_threads(before)


def set_threads(number: int) -> None:
    """Set the number of threads of the compiled kernels and of torch."""
    numba.set_num_threads(number)
    torch.set_num_threads(number)


def keep_freed_memory() -> bool:
    """Let glibc keep freed memory for reuse; return False with another C library.

    A training step on a CPU allocates and frees gigabytes. By default large blocks go back to the
    system and are zeroed page by page in the next step, which takes a quarter of the time
    (GoogLeNet, two cores). This holds for the whole process.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    largest = 2**31 - 1
    settings = ((MMAP_MAX, 0), (TRIM_THRESHOLD, largest), (TOP_PAD, 64 * 2**20))
    return all(mallopt(name, value) == 1 for name, value in settings)


def exit_with_parent() -> None:
    """Watch the parent in a thread, and exit when it ends: a killed parent cannot stop its workers.

    The parent is the process that started this one, even if a fork server forked it.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
