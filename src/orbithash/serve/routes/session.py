"""The key of a browser, and the endpoints for monitoring."""

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from orbithash.serve.limits.access import cookie_name, cookie_of, may_read, same
from orbithash.serve.problems import RETRY, problem
from orbithash.serve.schemas import Key, Problem, Status
from orbithash.serve.service import Service
from orbithash.serve.settings import ServeSettings


def session_routes(settings: ServeSettings) -> APIRouter:
    """What the page asks before all else."""
    routes = APIRouter(tags=["session"], responses={401: {"model": Problem}})

    @routes.get("/session", summary="Whether this browser may search")
    async def get_session(request: Request) -> Status:
        if settings.reading_is_open or may_read(request.headers, settings.keys):
            return Status(status="welcome")
        raise HTTPException(401, "this needs a key")

    @routes.post("/session", summary="Give a browser a cookie for a key")
    async def post_session(key: Key, request: Request, response: Response) -> Status:
        """The cookie allows searching, never changing, and ends when the key is changed."""
        known = [same(key.key, each) for each in (settings.keys.write, settings.keys.read) if each]
        if not any(known):
            raise HTTPException(401, "this key is not known here")
        response.set_cookie(
            cookie_name(settings.keys),
            cookie_of(settings.keys),
            max_age=30 * 24 * 3600,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return Status(status="welcome")

    return routes


TEXT = "text/plain; version=0.0.4; charset=utf-8"


def watching_routes(service: Service) -> APIRouter:
    """What load balancers and Prometheus ask for."""
    routes = APIRouter(tags=["watching"])

    @routes.get("/health", summary="Whether the process answers")
    async def get_health() -> Status:
        return Status(status="ok")

    @routes.get(
        "/ready",
        summary="Whether searches are answered",
        response_model=Status,
        responses={503: {"model": Problem}},
    )
    async def get_ready() -> Status | Response:
        if await service.readiness.get():
            return Status(status="ready")
        return problem(503, "the index does not answer at the moment", RETRY)

    @routes.get(
        "/metrics",
        summary="Figures for Prometheus",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}},
    )
    async def get_metrics() -> Response:
        await service.readiness.get()  # which counts the items
        return Response(service.metrics.text(), headers={"Content-Type": TEXT})

    return routes
