"""The process that serves: it listens, and when it is told to end, finishes what it accepted."""

import socket
import warnings
from collections.abc import Callable
from contextlib import suppress

import uvicorn

from orbithash.encoders import FeatureEncoder, ImageEncoder
from orbithash.encoders.runs.run_folder import encoder_of
from orbithash.errors import DamagedIndexError, InputError
from orbithash.index import Index
from orbithash.serve.app import create_app
from orbithash.serve.limits.connections import MOST, BriskConnection
from orbithash.serve.settings import ServeSettings, check_exposure

PATIENCE = 30  # seconds for requests under way when the server is told to end
WAITING = 2048  # connections that the system keeps until they are taken


def run_server(
    index: Index, settings: ServeSettings, *, ready: Callable[[str], None] = lambda address: None
) -> None:
    """Serve an index until the process is interrupted or terminated.

    `ready` is told the address when it can be used.
    """
    check_exposure(settings)
    # Pillow's, of images that are damaged but readable: nobody is there to see them.
    warnings.filterwarnings("ignore", module="PIL")
    with listen(settings.host, settings.port) as opened:
        app = create_app(index, encoder_or_none(index), settings)
        ready(address_of(opened))
        # After its orderly end uvicorn passes the signal on; for Ctrl-C the work is done then.
        with suppress(KeyboardInterrupt):
            server_of(app, settings).run(sockets=[opened])


def server_of(app: Callable[..., object], settings: ServeSettings) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            app,
            # The same on every machine, whatever else is installed there.
            http=BriskConnection,
            loop="asyncio",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=settings.behind_proxy,
            forwarded_allow_ips="127.0.0.1,::1",
            # Connections, not requests: far more may be open than are answered at once.
            limit_concurrency=max(MOST, 4 * settings.limits.concurrency),
            timeout_keep_alive=15,
            timeout_graceful_shutdown=PATIENCE,
        )
    )


def listen(host: str, port: int) -> socket.socket:
    """A socket at an address; port 0 is one that is free."""
    try:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(place[:2], family=family, backlog=WAITING)
    except OSError as error:
        raise InputError(
            f"cannot listen on {host}, port {port}: {error.strerror}; give another --host or --port"
        ) from None


def address_of(opened: socket.socket) -> str:
    host, port = opened.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def encoder_or_none(index: Index) -> FeatureEncoder | ImageEncoder | None:
    """The encoder of an index; one that was filled with bare codes has none."""
    try:
        return encoder_of(index)
    except DamagedIndexError:
        raise
    except InputError:
        return None
