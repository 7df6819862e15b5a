"""Everything that is decided of a request before any code of the API sees it."""

import asyncio
import logging
import math
import time

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orbithash.serve.access import refusal
from orbithash.serve.headers import SECURITY_HEADERS
from orbithash.serve.metrics import Metrics
from orbithash.serve.problems import RETRY, problem
from orbithash.serve.rates import Rates, client_of
from orbithash.serve.settings import Limits, ServeSettings

logger = logging.getLogger(__name__)

# Whoever watches the server must get through when nobody else does.
WATCHING = frozenset({"/health", "/ready", "/metrics"})


class Gate:
    """Refuses what may not, cannot or need not be answered, and counts the rest."""

    def __init__(self, app: ASGIApp, settings: ServeSettings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        limits = settings.limits
        self._rates = Rates(limits.rate, max(1.0, limits.rate * limits.burst_seconds))
        self._n_inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500
        has_begun = False

        async def send_guarded(message: Message) -> None:
            nonlocal status, has_begun
            if message["type"] == "http.response.start":
                status, has_begun = message["status"], True
                message = {**message, "headers": [*message["headers"], *SECURITY_HEADERS]}
            await send(message)

        try:
            await self._admit(scope, receive, send_guarded)
        except Exception:
            logger.exception("could not answer %s %s", scope["method"], scope["path"])
            if has_begun:  # too late for another answer: the connection is cut
                raise
            sorry = problem(500, "something went wrong here; the server's log says what")
            await sorry(scope, receive, send_guarded)
        finally:
            self._metrics.answered(scope, status, time.perf_counter() - began)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        early = self._refused(scope)
        if early is not None:
            await early(scope, receive, send)
            return
        self._n_inside += 1
        self._metrics.inside.set(self._n_inside)
        try:
            await self._app(scope, limited(receive, self._settings.limits), send)
        finally:
            self._n_inside -= 1
            self._metrics.inside.set(self._n_inside)

    def _refused(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if scope["path"] not in WATCHING:
            wait = self._rates.wait(client_of((scope.get("client") or ("",))[0]))
            if wait > 0:
                after = {"Retry-After": str(math.ceil(wait))}
                return problem(429, "too many requests from you; slow down", after)
            if self._n_inside >= self._settings.limits.concurrency:
                self._metrics.shed.inc()
                return problem(503, "busy: too many requests at once; try again soon", RETRY)
        refused = refusal(scope["method"], scope["path"], headers, self._settings)
        if refused is not None:
            status, sentence = refused
            asks = {"WWW-Authenticate": "Bearer"} if status == 401 else None
            return problem(status, sentence, asks)
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > self._settings.limits.upload_bytes:
            return too_large(self._settings.limits)
        return None


def too_large(limits: Limits) -> Response:
    return problem(413, f"at most {limits.upload_bytes / (1 << 20):g} MiB are taken at once")


def limited(receive: Receive, limits: Limits) -> Receive:
    """The body of a request while it is neither too large nor too slow, whatever it promised."""
    n_bytes = 0
    deadline = asyncio.get_running_loop().time() + limits.upload_seconds
    arrived = False

    async def receive_limited() -> Message:
        nonlocal n_bytes, arrived
        if arrived:  # from now on the only message is that the client has gone
            return await receive()
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            raise HTTPException(408, "the request took too long to arrive") from None
        arrived = not message.get("more_body", False)
        n_bytes += len(message.get("body", b""))
        if n_bytes > limits.upload_bytes:
            raise HTTPException(
                413, f"at most {limits.upload_bytes / (1 << 20):g} MiB are taken at once"
            )
        return message

    return receive_limited
