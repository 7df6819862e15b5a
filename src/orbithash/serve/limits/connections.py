"""Connections that wait for nobody: who neither asks nor reads is cut off."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from orbithash.serve.limits.rates import PART
from orbithash.serve.settings import is_loopback

HEAD = 10.0  # seconds for the head of a request to arrive, from its first byte on
MOST = 1000  # connections, of all clients
UNREAD = 10.0  # seconds in which a client must take some of what was sent


class Deadline:
    """Cuts a connection off unless it is lifted in time."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    def set(self, connection: H11Protocol, seconds: float) -> None:
        if self._timer is None:
            self._timer = connection.loop.call_later(seconds, connection.transport.abort)

    def lift(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class BriskConnection(H11Protocol):
    """uvicorn's connection, with an end to what it would wait for without one."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._asking, self._taking = Deadline(), Deadline()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._has_too_many():
            transport.abort()
        else:
            self._asking.set(self, HEAD)

    def _has_too_many(self) -> bool:
        """Whether a client has more connections than its part; this machine may have all."""
        if self.client is None or is_loopback(self.client[0]):
            return False
        of_client = sum(
            isinstance(other, H11Protocol)
            and other.client is not None
            and other.client[0] == self.client[0]
            for other in self.connections
        )
        return of_client > (self.limit_concurrency or MOST) // PART

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:  # the head of a request is not whole
            self._asking.set(self, HEAD)
        else:
            self._asking.lift()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._taking.set(self, UNREAD)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._taking.lift()

    def connection_lost(self, exc: Exception | None) -> None:
        self._asking.lift()
        self._taking.lift()
        super().connection_lost(exc)
