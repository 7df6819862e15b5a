"""Monitoring: liveness, readiness and Prometheus metrics."""

import asyncio
import time

from fastapi import APIRouter, Response

from orbithash.errors import HashingError
from orbithash.serve.error_responses import RETRY_SOON, error_response
from orbithash.serve.schemas import ErrorResponse, StatusResponse
from orbithash.serve.service import Service
from orbithash.serve.workers import OverloadedError

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CHECK_TIMEOUT = 5.0  # seconds for the index to respond
CHECK_LIFETIME = 1.0  # seconds for which the result of a check is reused


def health_routes(service: Service) -> APIRouter:
    routes = APIRouter(tags=["monitoring"])
    readiness = ReadinessCheck(service)

    @routes.get("/health", summary="Liveness: the process responds")
    async def get_health() -> StatusResponse:
        return StatusResponse(status="ok")

    @routes.get(
        "/ready",
        summary="Readiness: the index responds",
        response_model=StatusResponse,
        responses={503: {"model": ErrorResponse}},
    )
    async def get_ready() -> StatusResponse | Response:
        if await readiness.get():
            return StatusResponse(status="ready")
        return error_response(503, "the index does not respond", RETRY_SOON)

    @routes.get(
        "/metrics",
        summary="Prometheus metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}},
    )
    async def get_metrics() -> Response:
        await readiness.get()  # updates the number of items
        return Response(service.metrics.render(), headers={"Content-Type": METRICS_TYPE})

    return routes


class ReadinessCheck:
    """Counts the items of the index, once for all requests that arrive at the same time.

    The check runs in a separate thread: frequent requests for it do not delay searches.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._task: asyncio.Task[bool] | None = None
        self._expires_at = 0.0

    async def get(self) -> bool:
        if self._task is None or (self._task.done() and time.monotonic() > self._expires_at):
            self._task = asyncio.create_task(self._check())
        try:
            async with asyncio.timeout(CHECK_TIMEOUT):
                # Shielded: a client that disconnects must not cancel the check for the others.
                return await asyncio.shield(self._task)
        except TimeoutError:
            return False

    async def _check(self) -> bool:
        try:
            n_items = await self._service.readiness_pool.run(len, self._service.index)
            self._service.metrics.items.set(n_items)
        except (HashingError, OverloadedError):
            return False
        finally:
            self._expires_at = time.monotonic() + CHECK_LIFETIME
        return True
