"""Request bodies, read into memory before a route sees them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from orbithash.serve.error_responses import RETRY_SOON
from orbithash.serve.limits.limiters import ConcurrencyLimiter
from orbithash.serve.settings import Limits

SMALL_BYTES = 64 << 10  # bodies up to this size are admitted however many large ones arrive
TOTAL_FACTOR = 16  # memory for all bodies at once, in multiples of the largest allowed one


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
