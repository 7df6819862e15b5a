"""Bodies of requests, gathered before anything else is done for whoever sends them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from orbithash.serve.limits.rates import Shares
from orbithash.serve.problems import RETRY
from orbithash.serve.settings import Limits

SMALL = 64 << 10  # bytes; questions are let in however many large images arrive
TOGETHER = 16  # times the largest request, of all requests under way


class Bodies:
    """Takes bodies while they are neither too large, too slow nor too many."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._bytes = Shares(TOGETHER * limits.upload_bytes)

    @asynccontextmanager
    async def arriving(self, receive: Receive, client: str, most: int) -> AsyncIterator[Receive]:
        """What the application receives from: the whole body, which is in memory by now."""
        body, n_taken = bytearray(), 0
        deadline = asyncio.get_running_loop().time() + self._limits.upload_seconds
        more = True
        try:
            while more:
                message = await in_time(receive, deadline)
                if message["type"] == "http.disconnect":
                    raise HTTPException(400, "the request did not arrive whole")
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > most:
                    raise HTTPException(413, too_large(most))
                if len(body) > SMALL and len(body) > n_taken:
                    n_new = len(body) - n_taken
                    if not self._bytes.take(client, n_new):
                        raise HTTPException(503, "busy: too much arrives at once", RETRY)
                    n_taken += n_new
            yield replayed(bytes(body), receive)
        finally:
            if n_taken:
                self._bytes.give_back(client, n_taken)


async def in_time(receive: Receive, deadline: float) -> Message:
    try:
        async with asyncio.timeout_at(deadline):
            return await receive()
    except TimeoutError:
        raise HTTPException(408, "the request took too long to arrive") from None


def replayed(body: bytes, receive: Receive) -> Receive:
    """The body once; after that the only message is that the client has gone."""
    sent = False

    async def receive_again() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


def too_large(most: int) -> str:
    return f"at most {round(most / (1 << 20), 3):g} MiB are taken at once"
