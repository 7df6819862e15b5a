"""Worker pools: threads that clients share fairly, with a bounded queue."""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from orbithash.serve.limits.turns import CALLER, NoTurnError, Turns

Arguments = ParamSpec("Arguments")
Piece = TypeVar("Piece")
Result = TypeVar("Result")

LONG_WAIT = 0.5  # seconds after which a client may well have gone
TIMEOUT = 60.0  # seconds until the client gets an error; the thread still finishes its work


class OverloadedError(Exception):
    """The queue is full or the work takes too long; the client should retry later."""


class WorkerPool:
    """A thread pool whose threads go to clients in rotation; it rejects work when many wait."""

    def __init__(
        self,
        name: str,
        *,
        n_threads: int,
        max_queued: float = float("inf"),
        timeout: float = TIMEOUT,
    ) -> None:
        self.name, self._timeout = name, timeout
        self._turns = Turns(n_threads, max_waiting=max_queued)
        self._executor = ThreadPoolExecutor(n_threads, thread_name_prefix=name)

    @property
    def n_pending(self) -> int:
        """Calls that wait or run."""
        return len(self._turns)

    async def run(
        self,
        function: Callable[Arguments, Result],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Result:
        """Call a function in one of the threads and return its result.

        Raises `OverloadedError` if the queue is full or the timeout expires.
        """
        return await self._call(partial(function, *arguments, **options), has_begun=False)

    async def run_each(
        self, function: Callable[[Piece], Result], pieces: Iterable[Piece]
    ) -> list[Result]:
        """Call a function for each piece of some work; other clients take turns in between."""
        results: list[Result] = []
        for piece in pieces:
            results.append(await self._call(partial(function, piece), has_begun=bool(results)))
        return results

    async def _call(self, function: Callable[[], Result], *, has_begun: bool) -> Result:
        caller, loop = CALLER.get(), asyncio.get_running_loop()
        client = caller.network
        try:
            async with asyncio.timeout(self._timeout):
                start = loop.time()
                await self._turns.take(client, has_begun=has_begun)
                try:
                    has_waited = loop.time() - start > LONG_WAIT
                    if (has_waited or has_begun) and await caller.has_gone():
                        raise OverloadedError(self.name)
                    future = self._executor.submit(function)
                except BaseException:  # it has gone, or the server is being stopped
                    self._turns.release(client)
                    raise
                # Taken until the thread is done, even if the client disconnects before.
                future.add_done_callback(
                    lambda _: loop.call_soon_threadsafe(self._turns.release, client)
                )
                return await asyncio.shield(asyncio.wrap_future(future))
        except (TimeoutError, NoTurnError):
            raise OverloadedError(self.name) from None

    def close(self) -> None:
        """Finish running work; the clients of work that waits have disconnected."""
        self._executor.shutdown(wait=True, cancel_futures=True)
