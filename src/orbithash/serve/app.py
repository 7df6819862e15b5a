"""The FastAPI application: routes, middleware and error handlers around one index."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio.to_thread
from fastapi import Depends, FastAPI
from fastapi.security import HTTPBearer

from orbithash import __version__
from orbithash.encoders import Encoder
from orbithash.errors import UnknownLabelError
from orbithash.index import Index
from orbithash.serve.error_responses import add_error_handlers
from orbithash.serve.limits.access import API
from orbithash.serve.limits.middleware import AdmissionMiddleware
from orbithash.serve.metrics import Metrics
from orbithash.serve.routes.collection import (
    CachedStatistics,
    collection_routes,
    unknown_label_handler,
)
from orbithash.serve.routes.duplicates import duplicate_routes
from orbithash.serve.routes.health import health_routes
from orbithash.serve.routes.items import item_routes
from orbithash.serve.routes.page import page_routes, session_routes
from orbithash.serve.routes.search import search_routes
from orbithash.serve.schemas import ErrorResponse
from orbithash.serve.service import Service
from orbithash.serve.settings import ServeSettings

DESCRIPTION = """Search images by content.

Each image has a binary code; the smaller the Hamming distance between two codes, the more similar
the images. Every error is `{"detail": "one sentence"}`. Where a key is required, send
`Authorization: Bearer KEY`.
"""
ERRORS = {
    401: "A key is required.",
    413: "The request is too large.",
    422: "The request is invalid or cannot be processed.",
    429: "Too many requests from this client.",
    503: "The server is overloaded or the index is unavailable; try again.",
}


def create_app(
    index: Index,
    encoder: Encoder | None,
    settings: ServeSettings | None = None,
) -> FastAPI:
    """Create the application for an index, which it closes at shutdown."""
    settings = settings or ServeSettings()
    metrics = Metrics()
    service = Service(index, encoder, settings, metrics)
    metrics.add_gauge(
        "orbithash_encoding_queue",
        "Requests whose images are queued or being encoded.",
        lambda: service.encoding_pool.n_pending,
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await anyio.to_thread.run_sync(service.close)

    app = FastAPI(
        title="orbithash",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # would load scripts from another host; the page has its own
        redoc_url=None,
        responses={
            status: {"model": ErrorResponse, "description": reason}
            for status, reason in ERRORS.items()
        },
    )
    add_error_handlers(app)
    statistics = CachedStatistics(index)
    app.add_exception_handler(UnknownLabelError, unknown_label_handler(service, statistics))
    # Only documents the key in OpenAPI: the middleware checks it before any route is called.
    key = Depends(HTTPBearer(auto_error=False, description="A key from the server's environment."))
    for routes in (
        search_routes(service),
        item_routes(service),
        collection_routes(service, statistics),
        duplicate_routes(service),
    ):
        app.include_router(routes, prefix=API, dependencies=[key])
    app.include_router(session_routes(settings), prefix=API)
    app.include_router(health_routes(service))
    app.include_router(page_routes())
    app.add_middleware(AdmissionMiddleware, settings=settings, metrics=metrics)
    return app
