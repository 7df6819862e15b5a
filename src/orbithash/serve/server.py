"""The server process: listens, serves, and shuts down gracefully."""

import socket
import warnings
from collections.abc import Callable
from contextlib import suppress

import uvicorn

from orbithash.encoders import Encoder
from orbithash.encoders.runs.model_file import encoder_from_bytes
from orbithash.errors import DamagedIndexError, InputError
from orbithash.index import Index
from orbithash.serve.app import create_app
from orbithash.serve.limits.connections import MAX_CONNECTIONS, LimitedHttpProtocol
from orbithash.serve.settings import ServeSettings, check_exposure

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
        return encoder_from_bytes(index.encoder())
    except DamagedIndexError:
        raise
    except InputError:
        return None
