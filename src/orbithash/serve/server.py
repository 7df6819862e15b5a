"""The server process: listens, limits connections, serves, and shuts down gracefully."""

import asyncio
import socket
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import h11
import numpy as np
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from orbithash.encoders import Encoder
from orbithash.errors import DamagedIndexError, InputError
from orbithash.index import Index
from orbithash.serve import several_workers
from orbithash.serve.app import create_app
from orbithash.serve.limits.limiters import CLIENT_DIVISOR
from orbithash.serve.settings import ServeSettings, check_exposure, is_loopback

SHUTDOWN_SECONDS = 30  # for requests in flight
BACKLOG = 2048  # connections that the kernel queues until they are accepted


def run_server(
    index: Index, settings: ServeSettings, *, ready: Callable[[str], None] = lambda address: None
) -> None:
    """Serve an index until the process is interrupted or terminated.

    `ready` is called with the address as soon as the server listens.
    """
    check_exposure(settings)
    # Pillow warns of images that are damaged but readable; no user sees it here.
    warnings.filterwarnings("ignore", module="PIL")
    with listen(settings.host, settings.port) as listener:
        app = create_app(index, encoder_or_none(index), settings)
        ready(address_of(listener))
        # uvicorn raises the signal again after its shutdown; Ctrl-C is handled by then.
        with suppress(KeyboardInterrupt):
            create_server(app, settings).run(sockets=[listener])


def run_workers(
    open_served: Callable[[], Index],
    settings: ServeSettings,
    n_workers: int,
    *,
    ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve an index by several processes, each of which opens it, until this one is ended."""
    check_exposure(settings)
    warnings.filterwarnings("ignore", module="PIL")
    load_kernels()
    with listen(settings.host, settings.port) as listener:

        def work() -> None:
            index = open_served()
            app = create_app(index, encoder_or_none(index), settings)
            with suppress(KeyboardInterrupt):
                create_server(app, settings).run(sockets=[listener])

        ready(address_of(listener))
        several_workers.run_workers(work, n_workers)


def load_kernels() -> None:
    """Load what searches need before the processes part, so that it is in memory once.

    Only a loop without threads may run: after a fork, OpenMP could not start any.
    """
    import orbithash.kernels.search.asymmetric
    import orbithash.kernels.search.nearest  # noqa: F401
    from orbithash.kernels.search.wide_compare import lowest_bit

    lowest_bit(np.uint64(1))  # numba and what it needs are loaded with the first compiled function


def create_server(app: Callable[..., object], settings: ServeSettings) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            app,
            # Fixed, so that the server does not depend on other installed packages.
            http=LimitedHttpProtocol,
            loop="asyncio",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=settings.behind_proxy,
            forwarded_allow_ips="127.0.0.1,::1",
            # Counts connections, of which most are idle, not requests.
            limit_concurrency=max(MAX_CONNECTIONS, 4 * settings.limits.concurrency),
            timeout_keep_alive=15,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
    )


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 selects a free one."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise InputError(
            f"cannot listen on {host}, port {port}: {error.strerror}; give another --host or --port"
        ) from None


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def encoder_or_none(index: Index) -> Encoder | None:
    """Return the encoder of an index, or None if the index was filled with bare codes."""
    try:
        content = index.encoder()
    except DamagedIndexError:
        raise
    except InputError:
        return None
    from orbithash.encoders.runs.model_file import encoder_from_bytes  # with torch

    return encoder_from_bytes(content)


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
