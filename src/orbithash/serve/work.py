"""Threads with a bounded queue, and whether the index responds."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")

PATIENCE = 60.0  # seconds until whoever asked is told to try again, though the work goes on


class OverloadedError(Exception):
    """More is asked than can be done soon; it is better asked again later."""


class Workers:
    """A few threads, and a limit to what may wait for them."""

    def __init__(
        self, name: str, *, n_threads: int, n_waiting: int, patience: float = PATIENCE
    ) -> None:
        self.name, self._most, self._patience = name, n_threads + n_waiting, patience
        self._threads = ThreadPoolExecutor(n_threads, thread_name_prefix=name)
        self.n_accepted = 0  # under way or waiting; touched by the event loop alone

    async def run(
        self, function: Callable[Given, Result], *arguments: Given.args, **options: Given.kwargs
    ) -> Result:
        """What a function returns, called in one of the threads.

        `OverloadedError` if too much waits already, or if it takes longer than anyone would wait.
        """
        if self.n_accepted >= self._most:
            raise OverloadedError(self.name)
        self.n_accepted += 1
        # Counted until the work is done, even if whoever asked for it has gone meanwhile.
        work = self._threads.submit(function, *arguments, **options)
        loop = asyncio.get_running_loop()
        work.add_done_callback(lambda _: loop.call_soon_threadsafe(self._done))
        try:
            async with asyncio.timeout(self._patience):
                return await asyncio.shield(asyncio.wrap_future(work))
        except TimeoutError:
            raise OverloadedError(self.name) from None

    def _done(self) -> None:
        self.n_accepted -= 1

    def close(self) -> None:
        """Finish what is under way; for what still waits, nobody is there any more."""
        self._threads.shutdown(wait=True, cancel_futures=True)
