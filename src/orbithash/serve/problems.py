"""What goes wrong, as an answer: a status, one sentence, and never what is inside the server."""

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from orbithash.errors import DamagedIndexError, InputError, ServerError, StorageError
from orbithash.serve.work import OverloadedError

logger = logging.getLogger(__name__)

RETRY = {"Retry-After": "1"}


class UnknownItemError(Exception):
    """There is no item with this id, or nothing of it that could be shown."""


class RefusedError(Exception):
    """What was asked for is well formed, and still cannot be done; the message says why."""


def problem(status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"detail": sentence}, status_code=status, headers=headers)


def answer_problems(app: FastAPI) -> None:
    """Tell the app how each error is answered."""
    app.add_exception_handler(RequestValidationError, on_validation)
    app.add_exception_handler(HTTPException, on_http)
    for kind in (UnknownItemError, RefusedError, OverloadedError, InputError, ServerError):
        app.add_exception_handler(kind, on_ours)
    app.add_exception_handler(StorageError, on_ours)


async def on_validation(request: Request, error: Exception) -> Response:
    """The first thing that is wrong; what was sent is not repeated."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    # "body", "query" or "path" comes first, which whoever asked knows.
    place = ".".join(printable(part) for part in first["loc"][1:])
    message = str(first["msg"]).removeprefix("Value error, ")
    return problem(422, f"{place}: {message}" if place else message)


def printable(part: object) -> str:
    """A name as it was sent, as far as any text can hold it."""
    return str(part)[:100].encode("utf-8", "replace").decode()


async def on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, str(error.detail), dict(error.headers or {}))


async def on_ours(request: Request, error: Exception) -> Response:
    match error:
        case UnknownItemError():
            return problem(404, str(error))
        case OverloadedError():
            return problem(503, "busy: too many requests wait already; try again soon", RETRY)
        case StorageError():
            logger.error("%s", error)  # it names the server's folders
            return problem(503, "the index cannot be written at the moment; try again", RETRY)
        case ServerError():
            logger.error("%s", error)
            return problem(503, "the index is away at the moment; try again", RETRY)
        case DamagedIndexError():
            logger.error("%s", error)
            return problem(500, "the index is damaged; the server's log says where")
        case RefusedError():
            return problem(422, str(error))
        case _:
            logger.warning("%s", error)  # it may name files
            return problem(422, "what was sent cannot be used here; the server's log says why")
