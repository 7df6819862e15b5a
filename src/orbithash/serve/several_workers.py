"""Several processes that serve one index: forked from one, so that they share what is loaded.

Each opens the index itself; the mapped codes are in memory once. The first process serves nothing.
It replaces a worker that ends, and ends all of them when it is interrupted or terminated, or dies.
"""

import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

from orbithash.errors import StorageError

logger = logging.getLogger(__name__)

SOON = 5.0  # seconds; a worker that ends within them would do so again
STOPPED_BY = (signal.SIGINT, signal.SIGTERM)


class Stop(BaseException):
    """A signal to end all workers; no `Exception`, so that nothing else catches it."""

    def __init__(self, number: int) -> None:
        self.number = number


def run_workers(work: Callable[[], None], n_workers: int) -> None:
    """Run `work` in several processes until this one is interrupted or terminated."""
    lifeline, held = os.pipe()  # workers read its end when this process is gone
    gc.collect()
    gc.freeze()  # a collection would write to every object, and so copy it for each worker
    before = {number: signal.signal(number, raise_stop) for number in STOPPED_BY}
    started: dict[int, float] = {}
    told = 0
    try:
        while True:
            while len(started) < n_workers:
                started[fork(work, lifeline, held)] = time.monotonic()
            process, status = os.wait()
            begun = started.pop(process, None)
            if begun is None:
                continue
            logger.warning("a worker ended (%s) and is replaced", os.waitstatus_to_exitcode(status))
            if time.monotonic() - begun < SOON:
                raise StorageError(
                    "a worker of the server ended as soon as it had started; the lines above say "
                    "why, or try without --workers"
                )
    except Stop as stop:
        told = stop.number
    finally:
        for number in STOPPED_BY:
            signal.signal(number, signal.SIG_IGN)
        end_all(list(started))
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(lifeline)
        os.close(held)
    if told == signal.SIGTERM:
        # As after a shutdown of a single server: the sender sees that the signal was handled.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)


def raise_stop(number: int, frame: FrameType | None) -> None:
    raise Stop(number)


def fork(work: Callable[[], None], lifeline: int, held: int) -> int:
    """Start a worker and return its process."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        os.close(held)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        threading.Thread(target=end_with_parent, args=(lifeline,), daemon=True).start()
        work()
        code = 0
    except BaseException as error:
        print(f"orbithash: {error}", file=sys.stderr)  # noqa: T201 — nobody else can
    finally:
        os._exit(code)  # the caller's clean-up is the first process's


def end_with_parent(lifeline: int) -> None:
    os.read(lifeline, 1)  # returns when the last writer, the first process, is gone
    os.kill(os.getpid(), signal.SIGTERM)


def end_all(processes: list[int]) -> None:
    for process in processes:
        os.kill(process, signal.SIGTERM)
    for process in processes:
        os.waitpid(process, 0)
