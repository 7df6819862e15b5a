"""Middleware that checks every request, and reads its body, before it reaches a route."""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orbithash.serve.error_responses import RETRY_SOON, error_response
from orbithash.serve.limits.access import API, NO_STORE, SECURITY_HEADERS, check_access
from orbithash.serve.limits.limiters import ConcurrencyLimiter, RateLimiter, client_network
from orbithash.serve.metrics import Metrics
from orbithash.serve.settings import Limits, ServeSettings

logger = logging.getLogger(__name__)

# Monitoring must work when the server is overloaded: no rate or concurrency limit.
MONITORING_PATHS = frozenset({"/health", "/ready", "/metrics"})
IMAGE_SUFFIXES = ("/thumbnail", "/image")
SESSION_PATH = f"{API}/session"
MAX_SESSION_BYTES = 4096  # a session needs no key, so its body is small
SMALL_BYTES = 64 << 10  # bodies up to this size are admitted however many large ones arrive
TOTAL_FACTOR = 16  # memory for all bodies at once, in multiples of the largest allowed one


class AdmissionMiddleware:
    """ASGI middleware that admits or rejects requests, in the order of `_admit`.

    1. rate limit of the client: 429; not for monitoring
    2. host, origin and key: 421, 403, 401
    3. declared length of the body: 413
    4. body, read into memory: too large 413, too slow 408, too many at once 503; not for monitoring
    5. concurrency limit: 503; not for monitoring

    The slot of step 5 is taken once the body is complete, so slow clients occupy none. Every
    response gets the security headers and is counted in the metrics.
    """

    def __init__(self, app: ASGIApp, settings: ServeSettings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        limits = settings.limits
        self._rate = RateLimiter(limits.rate, burst=max(1.0, limits.rate * limits.burst_seconds))
        self._bodies = RequestBodyReader(limits)
        self._slots = ConcurrencyLimiter(limits.concurrency)
        # Separate: a page loads many images at once, and slow downloads must not block searches.
        self._image_slots = ConcurrencyLimiter(limits.concurrency)

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
        max_bytes = self._max_body_bytes(scope["path"])
        is_monitoring = scope["path"] in MONITORING_PATHS
        try:
            if not is_monitoring:
                self._check_rate(client)
            check_access(scope["method"], scope["path"], headers, self._settings)
            check_declared_length(headers, max_bytes)
            if is_monitoring:
                await self._app(scope, receive, send)
                return
            async with self._bodies.read(receive, client, max_bytes) as buffered_receive:
                with self._slot(scope, client):
                    await self._app(scope, buffered_receive, send)
        except HTTPException as error:  # from the checks above: the app handles those of its routes
            response = error_response(error.status_code, error.detail, dict(error.headers or {}))
            await response(scope, receive, send)

    def _check_rate(self, client: str) -> None:
        seconds = self._rate.acquire(client)
        if seconds > 0:
            retry = {"Retry-After": str(math.ceil(seconds))}
            raise HTTPException(429, "too many requests; retry later", retry)

    @contextmanager
    def _slot(self, scope: Scope, client: str) -> Iterator[None]:
        # POST /items/image ends with /image too, but adds an item.
        is_image = scope["method"] == "GET" and scope["path"].endswith(IMAGE_SUFFIXES)
        slots = self._image_slots if is_image else self._slots
        if not slots.try_acquire(client):
            self._metrics.rejected_busy.inc()
            raise HTTPException(503, "busy: too many requests at once; try again", RETRY_SOON)
        self._metrics.in_flight.inc()
        try:
            yield
        finally:
            slots.release(client)
            self._metrics.in_flight.dec()

    def _max_body_bytes(self, path: str) -> int:
        return MAX_SESSION_BYTES if path == SESSION_PATH else self._settings.limits.upload_bytes


class RequestBodyReader:
    """Reads bodies within limits of size, time and total memory."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._memory = ConcurrencyLimiter(TOTAL_FACTOR * limits.upload_bytes)

    @asynccontextmanager
    async def read(self, receive: Receive, client: str, max_bytes: int) -> AsyncIterator[Receive]:
        """Read a body and yield a `receive` that returns it in one message.

        Raises `HTTPException` if the body is too large, too slow, incomplete, or if too many bytes
        are in memory already. The memory counts as used until the context ends.
        """
        body, n_reserved = bytearray(), 0
        deadline = asyncio.get_running_loop().time() + self._limits.upload_seconds
        is_complete = False
        try:
            while not is_complete:
                message = await receive_before(receive, deadline)
                if message["type"] == "http.disconnect":
                    raise HTTPException(400, "the request body is incomplete")
                body += message.get("body", b"")
                is_complete = not message.get("more_body", False)
                if len(body) > max_bytes:
                    raise HTTPException(413, too_large(max_bytes))
                if len(body) > SMALL_BYTES and len(body) > n_reserved:
                    n_new = len(body) - n_reserved
                    if not self._memory.try_acquire(client, n_new):
                        raise HTTPException(503, "busy: too many uploads at once", RETRY_SOON)
                    n_reserved += n_new
            yield buffered(bytes(body), receive)
        finally:
            if n_reserved:
                self._memory.release(client, n_reserved)


def check_declared_length(headers: Headers, max_bytes: int) -> None:
    length = headers.get("content-length", "0")
    # 20 digits exceed every limit; int() is slow for very long ones.
    if length.isdecimal() and int(length[:20]) > max_bytes:
        raise HTTPException(413, too_large(max_bytes))


async def receive_before(receive: Receive, deadline: float) -> Message:
    try:
        async with asyncio.timeout_at(deadline):
            return await receive()
    except TimeoutError:
        raise HTTPException(408, "the request body took too long to arrive") from None


def buffered(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields the body first, then the client's disconnect message."""
    is_sent = False

    async def buffered_receive() -> Message:
        nonlocal is_sent
        if is_sent:
            return await receive()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return buffered_receive


def too_large(max_bytes: int) -> str:
    return f"the request is too large: at most {round(max_bytes / (1 << 20), 3):g} MiB are allowed"
