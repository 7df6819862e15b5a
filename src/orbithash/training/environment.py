"""The process that trains: memory, threads, random numbers and signals."""

import ctypes
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import numba
import torch

# Of glibc's mallopt.
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4


def keep_freed_memory() -> bool:
    """Let this process keep what it frees; False where the C library is another than glibc.

    A training step on a processor takes and frees gigabytes. By default each large piece goes back
    to the system and comes anew in the next step, page by page and filled with zeros, which takes a
    quarter of the time (GoogLeNet, two cores). It holds for the whole process, so it is called by
    programs, not by the library.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    largest = 2**31 - 1
    settings = ((MMAP_MAX, 0), (TRIM_THRESHOLD, largest), (TOP_PAD, 64 * 2**20))
    return all(mallopt(name, value) == 1 for name, value in settings)


@contextmanager
def steady_threads() -> Iterator[None]:
    """Let torch and the compiled kernels have the same number of threads, throughout.

    Both may share one OpenMP, and then the number that a kernel ran with becomes torch's from
    there on. Sums are rounded by how many threads share them, so a run that goes on in a new
    process would differ from one that never stopped.
    """
    before, kernels_before = torch.get_num_threads(), numba.get_num_threads()
    number = min(before, numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    numba.set_num_threads(number)
    torch.set_num_threads(number)
    try:
        yield
    finally:
        numba.set_num_threads(kernels_before)
        torch.set_num_threads(before)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """What torch draws inside follows from the seed; outside its generators are as they were."""
    # Of every device: seeding reaches them all.
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


logger = logging.getLogger(__name__)


class Interrupted(KeyboardInterrupt):
    """Training was asked to stop and did; what was done is saved if there are checkpoints."""


@contextmanager
def interruption() -> Iterator[Callable[[], bool]]:
    """A function that says whether Ctrl-C, or a request to terminate, has come since.

    A second Ctrl-C does not wait for the step to end.
    """
    requested = False

    def request(number: int, frame: FrameType | None) -> None:
        nonlocal requested
        if requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        requested = True
        logger.warning("stopping after this step; once more to stop at once")

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # signals reach the main thread only
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, request) for number in numbers]
    try:
        yield lambda: requested
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
