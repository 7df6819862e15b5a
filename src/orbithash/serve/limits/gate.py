"""Everything that is decided of a request before any code of the API sees it."""

import logging
import math
import time

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orbithash.serve.limits.access import API, NOT_KEPT, SECURITY_HEADERS, refusal
from orbithash.serve.limits.bodies import Bodies, too_large
from orbithash.serve.limits.rates import Rates, Shares, network_of
from orbithash.serve.metrics import Metrics
from orbithash.serve.problems import RETRY, problem
from orbithash.serve.settings import ServeSettings

logger = logging.getLogger(__name__)

# Whoever watches the server must get through when nobody else does, and takes nobody's place.
WATCHING = frozenset({"/health", "/ready", "/metrics"})
PICTURES = ("/thumbnail", "/image")
SESSION, SESSION_BYTES = f"{API}/session", 4096  # anyone may send one


class Gate:
    """Refuses what may not, cannot or need not be answered, and counts the rest."""

    def __init__(self, app: ASGIApp, settings: ServeSettings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        limits = settings.limits
        self._rates = Rates(limits.rate, max(1.0, limits.rate * limits.burst_seconds))
        self._bodies = Bodies(limits)
        # Apart, for a page asks for many pictures at once, and who takes them slowly must not
        # keep others from searching.
        self._places, self._picture_places = Shares(limits.concurrency), Shares(limits.concurrency)

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
                headers = [*message["headers"], *SECURITY_HEADERS]
                if all(name.lower() != b"cache-control" for name, _ in headers):
                    headers.append(NOT_KEPT)
                message = {**message, "headers": headers}
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
        if scope["path"] in WATCHING:
            await self._app(scope, receive, send)
            return
        client = client_of(scope)
        try:
            async with self._bodies.arriving(receive, client, self._most_bytes(scope)) as whole:
                await self._answer(scope, whole, send, client)
        except HTTPException as error:  # of the body: the application answers its own
            refused = problem(error.status_code, error.detail, dict(error.headers or {}))
            await refused(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, client: str) -> None:
        is_picture = scope["method"] == "GET" and scope["path"].endswith(PICTURES)
        places = self._picture_places if is_picture else self._places
        if not places.take(client):
            self._metrics.shed.inc()
            busy = problem(503, "busy: too many requests at once; try again soon", RETRY)
            await busy(scope, receive, send)
            return
        self._metrics.inside.inc()
        try:
            await self._app(scope, receive, send)
        finally:
            places.give_back(client)
            self._metrics.inside.dec()

    def _most_bytes(self, scope: Scope) -> int:
        return SESSION_BYTES if scope["path"] == SESSION else self._settings.limits.upload_bytes

    def _refused(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if scope["path"] not in WATCHING:
            wait = self._rates.wait(client_of(scope))
            if wait > 0:
                after = {"Retry-After": str(math.ceil(wait))}
                return problem(429, "too many requests from you; slow down", after)
        refused = refusal(scope["method"], scope["path"], headers, self._settings)
        if refused is not None:
            status, sentence = refused
            asks = {"WWW-Authenticate": "Bearer"} if status == 401 else None
            return problem(status, sentence, asks)
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > self._most_bytes(scope):
            return problem(413, too_large(self._most_bytes(scope)))
        return None


def client_of(scope: Scope) -> str:
    return network_of((scope.get("client") or ("",))[0])
