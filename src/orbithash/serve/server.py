"""The process that serves: it listens, and when it is told to end, finishes what it accepted."""

import warnings

import uvicorn

from orbithash.encoders import FeatureEncoder, ImageEncoder, encoder_of
from orbithash.errors import DamagedIndexError, InputError
from orbithash.index import Index
from orbithash.serve.app import create_app
from orbithash.serve.settings import ServeSettings, check_exposure

PATIENCE = 30  # seconds for requests under way when the server is told to end


def run_server(index: Index, settings: ServeSettings) -> None:
    """Serve an index until the process is interrupted or terminated."""
    check_exposure(settings)
    # Pillow's, of images that are damaged but readable: nobody is there to see them.
    warnings.filterwarnings("ignore", module="PIL")
    uvicorn.run(
        create_app(index, encoder_or_none(index), settings),
        host=settings.host,
        port=settings.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=settings.behind_proxy,
        forwarded_allow_ips="127.0.0.1,::1",
        # Connections, not requests: far more of them may be open than are answered at once.
        limit_concurrency=max(1000, 4 * settings.limits.concurrency),
        timeout_keep_alive=15,
        timeout_graceful_shutdown=PATIENCE,
    )


def encoder_or_none(index: Index) -> FeatureEncoder | ImageEncoder | None:
    """The encoder of an index; one that was filled with bare codes has none."""
    try:
        return encoder_of(index)
    except DamagedIndexError:
        raise
    except InputError:
        return None
