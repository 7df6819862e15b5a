"""Stopping a run between two steps, where all of it can be saved."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

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
