"""Request bodies: read within limits, before a route sees them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from orbithash.serve.error_responses import RETRY_SOON
from orbithash.serve.limits.limiters import ConcurrencyLimiter, RateLimiter
from orbithash.serve.settings import Limits

SMALL_BYTES = 64 << 10  # bodies up to this size are admitted however many large ones arrive
TOTAL_FACTOR = 16  # memory for all bodies at once, in multiples of the largest allowed one
BYTES_PER_SECOND = 16 << 20  # of one client; more would keep the event loop busy with reading
BURST_BYTES = 32 << 20
# The event loop stands still while JSON is parsed. An image is one long string, which takes hardly
# any time; a megabyte of small values takes half a second.
MAX_JSON_VALUES = 100_000  # a batch of the longest embeddings has two thirds of that
VALUE_COST = 256  # bytes of the rate; a value takes as long to parse as so many take to read
MAX_TEXT_BYTES = 4 << 20  # of a body without images


class RequestBodyReader:
    """Reads bodies within limits of size, time and total memory."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._memory = ConcurrencyLimiter(TOTAL_FACTOR * limits.upload_bytes)
        self._rate = RateLimiter(BYTES_PER_SECOND, burst=BURST_BYTES)

    @asynccontextmanager
    async def read(
        self, receive: Receive, client: str, headers: Headers, max_bytes: int
    ) -> AsyncIterator[Receive]:
        """Read a body and yield a `receive` that returns it in one message.

        Raises `HTTPException` if the body is too large, too slow, incomplete, or if too many bytes
        are in memory already. The memory counts as used until the context ends.
        """
        body, n_reserved, n_values = bytearray(), 0, 0
        is_text = not headers.get("content-type", "").lower().startswith("multipart/")
        deadline = asyncio.get_running_loop().time() + self._limits.upload_seconds
        is_complete = False
        try:
            while not is_complete:
                message = await receive_before(receive, deadline)
                if message["type"] == "http.disconnect":
                    raise HTTPException(400, "the request body is incomplete")
                part = message.get("body", b"")
                body += part
                is_complete = not message.get("more_body", False)
                if len(body) > max_bytes:
                    raise HTTPException(413, too_large(max_bytes))
                n_new_values = count_values(part) if is_text else 0
                n_values += n_new_values
                if seconds := self._rate.spend(client, len(part) + VALUE_COST * n_new_values):
                    await asyncio.sleep(seconds)
                if is_text:
                    try:
                        check_text(body, n_values)
                    except HTTPException:
                        # The server reads the rest in any case, after the response.
                        length = min(declared_length(headers), max_bytes)
                        seconds = self._rate.spend(client, max(0, length - len(body)))
                        await asyncio.sleep(min(seconds, self._limits.upload_seconds))
                        raise
                if len(body) > SMALL_BYTES and len(body) > n_reserved:
                    n_new = len(body) - n_reserved
                    if not self._memory.try_acquire(client, n_new):
                        raise HTTPException(503, "busy: too many uploads at once", RETRY_SOON)
                    n_reserved += n_new
            yield buffered(bytes(body), receive)
        finally:
            if n_reserved:
                self._memory.release(client, n_reserved)


def count_values(text: bytes) -> int:
    """Return the number of values that begin in a part of JSON or of a form, or a few more."""
    return sum(text.count(mark) for mark in (b",", b"[", b"{", b"&"))


def check_text(body: bytearray, n_values: int) -> None:
    """Raise for a body that would take long to parse as JSON."""
    if n_values > MAX_JSON_VALUES:
        raise HTTPException(
            413,
            f"the request has more than {MAX_JSON_VALUES:,} values, which is the limit; send it in "
            "several requests",
        )
    if len(body) > MAX_TEXT_BYTES and body.find(b'"image"', 0, MAX_TEXT_BYTES) < 0:
        raise HTTPException(413, too_large(MAX_TEXT_BYTES, "without an image"))


def check_declared_length(headers: Headers, max_bytes: int) -> None:
    if declared_length(headers) > max_bytes:
        # Otherwise the server would read it all, after the response.
        raise HTTPException(413, too_large(max_bytes), {"Connection": "close"})


def declared_length(headers: Headers) -> int:
    length = headers.get("content-length", "0")
    # 20 digits exceed every limit; int() is slow for very long ones.
    return int(length[:20]) if length.isdecimal() else 0


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


def too_large(max_bytes: int, kind: str = "") -> str:
    limit = f"{round(max_bytes / (1 << 20), 3):g} MiB"
    return f"the request is too large: at most {limit} are allowed {kind}".rstrip()
