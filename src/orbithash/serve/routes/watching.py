"""For whoever watches the server: is it there, does it work, how much does it do."""

from fastapi import APIRouter, Response

from orbithash.serve.problems import RETRY, problem
from orbithash.serve.schemas import Problem, Status
from orbithash.serve.service import Service

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
