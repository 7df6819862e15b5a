"""Whether the index answers: found out once for everyone who asks at the same time."""

import asyncio
import time

from orbithash.errors import HashingError
from orbithash.index import Index
from orbithash.serve.metrics import Metrics
from orbithash.serve.work import OverloadedError, Workers

PATIENCE = 5.0  # seconds for the index to answer
KEPT = 1.0  # seconds that an answer holds


class Readiness:
    """One look at the index at a time, in a thread of its own: anyone may ask, at any rate."""

    def __init__(self, index: Index, metrics: Metrics) -> None:
        self._index, self._metrics = index, metrics
        self._workers = Workers("watching", n_threads=1, n_waiting=0)
        self._look: asyncio.Task[bool] | None = None
        self._until = 0.0

    async def get(self) -> bool:
        if self._look is None or (self._look.done() and time.monotonic() > self._until):
            self._look = asyncio.create_task(self._answers())
        try:
            async with asyncio.timeout(PATIENCE):
                # Whoever stops waiting does not stop the others.
                return await asyncio.shield(self._look)
        except TimeoutError:
            return False

    async def _answers(self) -> bool:
        try:
            self._metrics.items.set(await self._workers.run(len, self._index))
        except (HashingError, OverloadedError):
            return False
        finally:
            self._until = time.monotonic() + KEPT
        return True

    def close(self) -> None:
        self._workers.close()
