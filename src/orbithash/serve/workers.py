"""Worker pools: threads with a bounded queue."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

TIMEOUT = 60.0  # seconds until the client gets an error; the thread still finishes its work
UNBOUNDED = 1 << 30


class OverloadedError(Exception):
    """The queue is full or the work takes too long; the client should retry later."""


class WorkerPool:
    """A thread pool that rejects work when its queue is full."""

    def __init__(
        self,
        name: str,
        *,
        n_threads: int,
        max_queued: int = UNBOUNDED,
        timeout: float = TIMEOUT,
    ) -> None:
        self.name, self._capacity, self._timeout = name, n_threads + max_queued, timeout
        self._executor = ThreadPoolExecutor(n_threads, thread_name_prefix=name)
        self.n_pending = 0  # queued or running; only the event loop changes it

    async def run(
        self,
        function: Callable[Arguments, Result],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Result:
        """Call a function in one of the threads and return its result.

        Raises `OverloadedError` if the queue is full or the timeout expires.
        """
        if self.n_pending >= self._capacity:
            raise OverloadedError(self.name)
        self.n_pending += 1
        # Counted until the thread is done, even if the client disconnects before.
        future = self._executor.submit(function, *arguments, **options)
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._finished))
        try:
            async with asyncio.timeout(self._timeout):
                return await asyncio.shield(asyncio.wrap_future(future))
        except TimeoutError:
            raise OverloadedError(self.name) from None

    def _finished(self) -> None:
        self.n_pending -= 1

    def close(self) -> None:
        """Finish running work and cancel queued work, whose clients have disconnected."""
        self._executor.shutdown(wait=True, cancel_futures=True)
