"""The application: routes, limits and errors put together around one index."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio.to_thread
from fastapi import Depends, FastAPI
from fastapi.security import HTTPBearer

from orbithash import __version__
from orbithash.encoders import FeatureEncoder, ImageEncoder
from orbithash.index import Index
from orbithash.serve.limits.access import API
from orbithash.serve.limits.gate import Gate
from orbithash.serve.metrics import Metrics
from orbithash.serve.problems import answer_problems
from orbithash.serve.routes.collection import collection_routes
from orbithash.serve.routes.items import item_routes
from orbithash.serve.routes.pages import page_routes
from orbithash.serve.routes.searches import search_routes
from orbithash.serve.routes.session import session_routes, watching_routes
from orbithash.serve.schemas import Problem
from orbithash.serve.service import Service
from orbithash.serve.settings import ServeSettings

DESCRIPTION = """Find images by what is on them.

Codes are strings of bits; the fewer bits differ, the more alike two images are. Every error is
`{"detail": "one sentence"}`. Where a key is needed, send `Authorization: Bearer KEY`.
"""
REFUSALS = {
    401: "A key is needed.",
    413: "The request is too large.",
    422: "What was sent cannot be used.",
    429: "Too many requests of this client.",
    503: "Too much to do; try again.",
}


def create_app(
    index: Index,
    encoder: FeatureEncoder | ImageEncoder | None,
    settings: ServeSettings | None = None,
) -> FastAPI:
    """A server for an index, which it closes when it ends."""
    settings = settings or ServeSettings()
    metrics = Metrics()
    service = Service(index, encoder, settings, metrics)
    metrics.watch(
        "orbithash_encoding_queue",
        "Requests whose images wait or are encoded.",
        lambda: service.encoding.n_accepted,
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
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
        responses={
            status: {"model": Problem, "description": why} for status, why in REFUSALS.items()
        },
    )
    answer_problems(app)
    # For the description alone: the gate has seen the key before any route is called.
    key = Depends(HTTPBearer(auto_error=False, description="A key from the server's environment."))
    for routes in (search_routes(service), item_routes(service), collection_routes(service)):
        app.include_router(routes, prefix=API, dependencies=[key])
    app.include_router(session_routes(settings), prefix=API)
    app.include_router(watching_routes(service))
    app.include_router(page_routes())
    app.add_middleware(Gate, settings=settings, metrics=metrics)
    return app
