"""Turns: places for work that clients share, and take in rotation when they have to wait."""

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

from starlette.types import Receive


@dataclass(frozen=True)
class Caller:
    """The client whose request is being handled."""

    network: str = ""
    receive: Receive | None = None  # returns, once the body is read, when the client disconnects

    async def has_gone(self) -> bool:
        if self.receive is None:
            return False
        message = asyncio.ensure_future(self.receive())
        await asyncio.sleep(0)
        if message.done():
            return bool(message.result()["type"] == "http.disconnect")
        message.cancel()
        return False


NOBODY = Caller()
CALLER: ContextVar[Caller] = ContextVar("caller", default=NOBODY)

RECENT = 1.0  # seconds after its last work for which a client keeps its share


class NoTurnError(Exception):
    """Too much waits for a place already; the client should retry later."""


class Turns:
    """A number of places; for use on the event loop only.

    A client may take all places while no other client was there in the last second, otherwise its
    equal share. A place that becomes free goes to the waiting client whose turn is longest ago. If
    too many wait, the client with most of them loses its latest one.
    """

    def __init__(
        self,
        n_places: int,
        *,
        max_waiting: float = float("inf"),
        largest_share: Callable[[str, int], int] = lambda client, n_places: n_places,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._n_places, self._max_waiting = n_places, max_waiting
        self._largest_share, self._clock = largest_share, clock
        self._taken: Counter[str] = Counter()
        self._n_taken = self._n_waiting = 0
        # Clients in the order of their turns; each has its requests in their order.
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._last_seen: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        """Return how much works or waits."""
        return self._n_taken + self._n_waiting

    async def take(self, client: str, *, has_begun: bool = False) -> None:
        """Wait for a place; raise `NoTurnError` if too many wait already.

        Work that `has_begun` comes before other work of its client, and always may wait.
        """
        self._see(client)
        if self._n_taken < self._n_places and self._has_share_left(client):
            self._give(client)
            return
        if self._n_waiting >= self._max_waiting and not has_begun:
            self._make_room_for(client)
        place = asyncio.get_running_loop().create_future()
        queue = self._waiting.setdefault(client, deque())
        if has_begun:
            queue.appendleft(place)
        else:
            queue.append(place)
        self._n_waiting += 1
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled():
                self._forget(client, place)
            elif (
                place.exception() is None
            ):  # it was given and the wait cancelled at the same moment
                self.release(client)
            raise

    def release(self, client: str) -> None:
        """Give a place back, to a client that waits for one."""
        self._taken[client] -= 1
        if self._taken[client] <= 0:
            del self._taken[client]
        self._n_taken -= 1
        self._see(client)
        while self._n_taken < self._n_places:
            following = next((each for each in self._waiting if self._has_share_left(each)), None)
            if following is None:
                break
            place = self._waiting[following][0]
            self._forget(following, place)
            if following in self._waiting:
                self._waiting.move_to_end(following)
            if not place.done():  # as it is if its wait was cancelled at this moment
                self._give(following)
                place.set_result(None)

    def _give(self, client: str) -> None:
        self._taken[client] += 1
        self._n_taken += 1

    def _has_share_left(self, client: str) -> bool:
        share = max(1, self._n_places // len(self._last_seen))
        return self._taken[client] < min(share, self._largest_share(client, self._n_places))

    def _see(self, client: str) -> None:
        """Note that a client is there, and forget those that have gone."""
        now = self._clock()
        self._last_seen[client] = now
        self._last_seen.move_to_end(client)
        while (oldest := next(iter(self._last_seen))) != client:
            if oldest in self._taken or oldest in self._waiting:
                self._last_seen[oldest] = now
                self._last_seen.move_to_end(oldest)
            elif now - self._last_seen[oldest] > RECENT:
                del self._last_seen[oldest]
            else:
                break

    def _make_room_for(self, client: str) -> None:
        """Refuse the latest request of the client with most of them; or this one."""
        most = max(self._waiting, key=lambda each: len(self._waiting[each]), default=client)
        n_of_client = len(self._waiting.get(client, ()))
        if most == client or len(self._waiting[most]) <= n_of_client + 1:
            raise NoTurnError
        place = self._waiting[most][-1]
        self._forget(most, place)
        if not place.done():
            place.set_exception(NoTurnError())

    def _forget(self, client: str, place: asyncio.Future[None]) -> None:
        queue = self._waiting.get(client, deque())
        if place in queue:
            queue.remove(place)
            self._n_waiting -= 1
            if not queue:
                del self._waiting[client]
