"""The server process: listens, serves, and shuts down gracefully."""

import asyncio
import socket
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import uvicorn

from orbithash.encoders import Encoder
from orbithash.errors import DamagedIndexError, InputError
from orbithash.index import Index
from orbithash.serve import several_workers
from orbithash.serve.app import create_app
from orbithash.serve.limits.connections import AcceptErrors, limited_protocol
from orbithash.serve.settings import ServeSettings, check_exposure

SHUTDOWN_SECONDS = 30  # for requests in flight
BACKLOG = 2048  # connections that the kernel queues until they are accepted
ACCEPTED_AT_ONCE = 16  # connections; some hundred may be open before the first is counted
# A thread that computes gives way to the event loop after this time, and not after Python's 5 ms:
# a request changes threads some ten times.
SWITCH_SECONDS = 0.0005


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
        run_app(app, settings, listener)


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
    with open_served() as index:
        preload(index, settings)
    with listen(settings.host, settings.port) as listener:

        def work() -> None:
            index = open_served()
            app = create_app(index, encoder_or_none(index), settings)
            run_app(app, settings, listener)

        ready(address_of(listener))
        several_workers.run_workers(work, n_workers)


def run_app(app: Callable[..., object], settings: ServeSettings, listener: socket.socket) -> None:
    """Serve until this process is interrupted or terminated."""
    sys.setswitchinterval(SWITCH_SECONDS)
    # uvicorn raises the signal again after its shutdown; Ctrl-C is handled by then.
    with suppress(KeyboardInterrupt):
        create_server(app, settings).run(sockets=[listener])


def preload(index: Index, settings: ServeSettings) -> None:
    """Load what requests need before the processes part, so that it is in memory once.

    Only loops without threads may run: after a fork, OpenMP could not start any.
    """
    import orbithash.kernels.search.asymmetric
    import orbithash.kernels.search.nearest
    from orbithash.kernels.search.wide_compare import lowest_bit

    lowest_bit(np.uint64(1))  # numba and what it needs are loaded with the first compiled function
    if encoder_bytes(index) is not None:
        import orbithash.encoders.runs.model_file  # noqa: F401 — with torch
    create_app(index, None, settings)  # each worker creates its own, of which parts are kept


def create_server(app: Callable[..., object], settings: ServeSettings) -> uvicorn.Server:
    return Server(
        uvicorn.Config(
            app,
            # Fixed, so that the server does not depend on other installed packages.
            http=limited_protocol(4 * settings.limits.concurrency),
            loop="asyncio",
            # uvicorn warns of each malformed request, and so of as many as a client likes.
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=settings.behind_proxy,
            forwarded_allow_ips="127.0.0.1,::1",
            backlog=ACCEPTED_AT_ONCE,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
    )


class Server(uvicorn.Server):
    """uvicorn's server, which logs little when it cannot accept connections."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(AcceptErrors())
        await super().startup(sockets)


class Listener(socket.socket):
    """A listening socket that lets many connections wait, however few are accepted at once.

    asyncio calls `listen` with the number that it accepts at once.
    """

    def listen(self, backlog: int = BACKLOG, /) -> None:
        super().listen(BACKLOG)


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 selects a free one."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        opened = socket.create_server(address[:2], family=family, backlog=BACKLOG)
        return Listener(fileno=opened.detach())
    except OSError as error:
        raise InputError(
            f"cannot listen on {host}, port {port}: {error.strerror}; give another --host or --port"
        ) from None


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def encoder_or_none(index: Index) -> Encoder | None:
    """Return the encoder of an index, or None if the index was filled with bare codes."""
    content = encoder_bytes(index)
    if content is None:
        return None
    from orbithash.encoders.runs.model_file import encoder_from_bytes  # with torch

    return encoder_from_bytes(content)


def encoder_bytes(index: Index) -> bytes | None:
    try:
        return index.encoder()
    except DamagedIndexError:
        raise
    except InputError:
        return None
