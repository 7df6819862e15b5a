"""Middleware that checks every request, and reads its body, before it reaches a route."""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orbithash.serve.error_responses import RETRY_SOON, error_response
from orbithash.serve.limits.access import API, NO_STORE, SECURITY_HEADERS, check_access
from orbithash.serve.limits.bodies import RequestBodyReader, check_declared_length
from orbithash.serve.limits.limiters import RateLimiter, client_network, largest_share
from orbithash.serve.limits.turns import CALLER, Caller, Turns
from orbithash.serve.metrics import Metrics
from orbithash.serve.settings import ServeSettings

logger = logging.getLogger(__name__)

# Monitoring must work when the server is overloaded: no concurrency limit, and a rate of its own.
MONITORING_PATHS = frozenset({"/health", "/ready", "/metrics"})
IMAGE_SUFFIXES = ("/thumbnail", "/image")
SESSION_PATH = f"{API}/session"
# Only searches and new items have large bodies; a session needs no key, and others have none.
LARGE_BODIES = (f"{API}/search", f"{API}/items")
MAX_SMALL_BYTES = 4096
# A request waits so long for its turn before it is rejected. The client of one that exceeds its
# rate waits too: it could otherwise keep the server busy with rejecting.
MAX_WAIT = 2.0
IMAGE_WAIT = 30.0  # a page shows many images at once, and one may take a second to decode


class AdmissionMiddleware:
    """ASGI middleware that admits or rejects requests, in the order of `_admit`.

    1. rate limit of the client: 429, after two seconds
    2. host, origin and key: 421, 403, 401
    3. declared length of the body: 413
    4. body, read into memory: too large 413, too slow 408, too many at once 503; not for monitoring
    5. concurrency limit: clients take turns, and a request that waits longer than two seconds, or
       thirty for an image, gets 503; not for monitoring

    The place of step 5 is taken once the body is complete, so slow clients occupy none. Every
    response gets the security headers and is counted in the metrics.
    """

    def __init__(self, app: ASGIApp, settings: ServeSettings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        limits = settings.limits
        self._rate = RateLimiter(limits.rate, burst=max(1.0, limits.rate * limits.burst_seconds))
        self._monitoring_rate = RateLimiter(
            limits.rate, burst=max(1.0, limits.rate * limits.burst_seconds)
        )
        self._bodies = RequestBodyReader(limits)
        self._places = Turns(limits.concurrency, largest_share=largest_share)
        # Separate: a page loads many images at once, and slow downloads must not block searches.
        self._image_places = Turns(limits.concurrency, largest_share=largest_share)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status, has_started = time.perf_counter(), 500, False

        async def send_with_headers(message: Message) -> None:
            nonlocal status, has_started
            if message["type"] == "http.response.start":
                status, has_started = message["status"], True
                headers = [*message["headers"], *SECURITY_HEADERS]
                if all(name.lower() != b"cache-control" for name, _ in headers):
                    headers.append(NO_STORE)
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self._admit(scope, receive, send_with_headers)
        except Exception:
            logger.exception("internal error in %s %s", scope["method"], scope["path"])
            if has_started:  # too late for an error response; the server closes the connection
                raise
            response = error_response(500, "internal server error; see the server log")
            await response(scope, receive, send_with_headers)
        finally:
            self._metrics.record_request(scope, status, time.perf_counter() - start)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        client, headers = client_network(scope), Headers(scope=scope)
        max_bytes = self._max_body_bytes(scope)
        is_monitoring = scope["path"] in MONITORING_PATHS
        try:
            await check_rate(self._monitoring_rate if is_monitoring else self._rate, client)
            check_access(scope["method"], scope["path"], headers, self._settings)
            check_declared_length(headers, max_bytes)
            CALLER.set(Caller(client))
            if is_monitoring:
                await self._app(scope, receive, send)
                return
            async with (
                self._bodies.read(receive, client, headers, max_bytes) as buffered_receive,
                self._place(scope, client),
            ):
                CALLER.set(Caller(client, receive))
                await self._app(scope, buffered_receive, send)
        except HTTPException as error:  # from the checks above: the app handles those of its routes
            response = error_response(error.status_code, error.detail, dict(error.headers or {}))
            await response(scope, receive, send)

    @asynccontextmanager
    async def _place(self, scope: Scope, client: str) -> AsyncIterator[None]:
        # POST /items/image ends with /image too, but adds an item.
        is_image = scope["method"] == "GET" and scope["path"].endswith(IMAGE_SUFFIXES)
        places = self._image_places if is_image else self._places
        try:
            async with asyncio.timeout(IMAGE_WAIT if is_image else MAX_WAIT):
                await places.take(client)
        except TimeoutError:
            self._metrics.rejected_busy.inc()
            busy = "busy: too many requests at once; try again"
            raise HTTPException(503, busy, RETRY_SOON) from None
        self._metrics.in_flight.inc()
        try:
            yield
        finally:
            places.release(client)
            self._metrics.in_flight.dec()

    def _max_body_bytes(self, scope: Scope) -> int:
        is_large = scope["method"] == "POST" and scope["path"].startswith(LARGE_BODIES)
        return self._settings.limits.upload_bytes if is_large else MAX_SMALL_BYTES


async def check_rate(rate: RateLimiter, client: str) -> None:
    seconds = rate.acquire(client)
    if seconds > 0:
        await asyncio.sleep(MAX_WAIT)
        retry = {"Retry-After": str(math.ceil(seconds))}
        raise HTTPException(429, "too many requests; retry later", retry)
