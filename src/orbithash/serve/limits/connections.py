"""Limits of connections: how many, per client and in total, and how long each may be silent.

uvicorn has no such limits, and the server may be reached without a proxy that has them.
"""

import asyncio
import logging
import math
import resource
from collections import Counter
from functools import partial
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from orbithash.serve.limits.limiters import largest_share, network_of

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 1000  # of all clients; fewer if the process may not open as many files
OTHER_FILES = 128  # that the process opens: index, images, and connections accepted at once
HEADER_TIMEOUT = 10.0  # seconds for the headers of a request to arrive, from the first byte on
WRITE_TIMEOUT = 10.0  # seconds in which a client must read some of a response
ACCEPT_LOG_SECONDS = 60.0


def limited_protocol(n_expected: int) -> Any:
    """Return the protocol class for uvicorn, with room for so many connections or more."""
    n_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    allowed = max(MAX_CONNECTIONS, n_expected)
    if n_files != resource.RLIM_INFINITY:
        allowed = max(1, min(allowed, n_files - OTHER_FILES))
    return partial(LimitedHttpProtocol, allowed, Counter())


class LimitedHttpProtocol(H11Protocol):
    """uvicorn's HTTP protocol with these limits; connections beyond them are closed at once."""

    def __init__(self, allowed: int, n_connections: Counter[str], **options: Any) -> None:
        super().__init__(**options)
        self._allowed, self._n_connections, self._network = allowed, n_connections, ""
        self._header_timer, self._write_timer = AbortTimer(), AbortTimer()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._network = network_of(self.client[0]) if self.client else ""
        self._n_connections[self._network] += 1
        of_client = self._n_connections[self._network]
        if self._n_connections.total() > self._allowed or of_client > largest_share(
            self._network, self._allowed
        ):
            transport.abort()
        else:
            self._header_timer.start(self, HEADER_TIMEOUT)

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
        self._n_connections[self._network] -= 1
        if self._n_connections[self._network] <= 0:
            del self._n_connections[self._network]
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


class AcceptErrors:
    """Logs that no connection can be accepted once a minute, not for every connection that waits.

    Other errors of the event loop are logged as usual.
    """

    def __init__(self) -> None:
        self._logged_at = -math.inf

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not (isinstance(error, OSError) and "accept()" in context.get("message", "")):
            loop.default_exception_handler(context)
        elif loop.time() - self._logged_at > ACCEPT_LOG_SECONDS:
            self._logged_at = loop.time()
            logger.error(
                "cannot accept connections now: %s; let the server open more files (ulimit -n)",
                error.strerror,
            )
