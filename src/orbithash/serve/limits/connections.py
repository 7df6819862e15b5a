"""Limits of TCP connections: slow, idle and too many ones are closed."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from orbithash.serve.limits.limiters import CLIENT_DIVISOR
from orbithash.serve.settings import is_loopback

MAX_CONNECTIONS = 1000  # of all clients
HEADER_TIMEOUT = 10.0  # seconds for the headers of a request to arrive, from the first byte on
WRITE_TIMEOUT = 10.0  # seconds in which a client must read some of a response


class LimitedHttpProtocol(H11Protocol):
    """uvicorn's HTTP protocol with timeouts and a limit of connections per client."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._header_timer, self._write_timer = AbortTimer(), AbortTimer()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._exceeds_connection_limit():
            transport.abort()
        else:
            self._header_timer.start(self, HEADER_TIMEOUT)

    def _exceeds_connection_limit(self) -> bool:
        """Return whether the client has more than its quarter; loopback clients may have all."""
        if self.client is None or is_loopback(self.client[0]):
            return False
        n_of_client = sum(
            isinstance(other, H11Protocol)
            and other.client is not None
            and other.client[0] == self.client[0]
            for other in self.connections
        )
        return n_of_client > (self.limit_concurrency or MAX_CONNECTIONS) // CLIENT_DIVISOR

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:  # the headers are incomplete
            self._header_timer.start(self, HEADER_TIMEOUT)
        else:
            self._header_timer.cancel()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer.start(self, WRITE_TIMEOUT)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._write_timer.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._header_timer.cancel()
        self._write_timer.cancel()
        super().connection_lost(exc)


class AbortTimer:
    """Aborts a connection unless it is cancelled in time; a running timer is not restarted."""

    def __init__(self) -> None:
        self._handle: asyncio.TimerHandle | None = None

    def start(self, connection: H11Protocol, seconds: float) -> None:
        if self._handle is None:
            self._handle = connection.loop.call_later(seconds, connection.transport.abort)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
