"""Errors as HTTP responses: a status and one sentence, without details of the server."""

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from orbithash.errors import (
    DamagedIndexError,
    InputError,
    ReplacedIndexError,
    ServerError,
    StorageError,
    UnknownIdError,
)
from orbithash.serve.workers import OverloadedError

logger = logging.getLogger(__name__)

RETRY_SOON = {"Retry-After": "1"}


class NotFoundError(Exception):
    """404: there is no such item, image or file."""


class UnprocessableError(Exception):
    """422: the request is well formed but cannot be processed; the message says why."""


SERVICE_ERRORS: tuple[type[Exception], ...] = (
    NotFoundError,
    UnprocessableError,
    OverloadedError,
    InputError,
    ReplacedIndexError,
    ServerError,
    StorageError,
)


def error_response(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"detail": detail}, status_code=status, headers=headers)


def add_error_handlers(app: FastAPI) -> None:
    """Register a handler for every error that routes raise on purpose."""
    app.add_exception_handler(RequestValidationError, on_validation_error)
    app.add_exception_handler(HTTPException, on_http_exception)
    for kind in SERVICE_ERRORS:
        app.add_exception_handler(kind, on_service_error)


async def on_validation_error(request: Request, error: Exception) -> Response:
    """Report the first invalid field, without repeating its value."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    # loc[0] is "body", "query" or "path", which the client knows.
    field = ".".join(printable(part) for part in first["loc"][1:])
    message = str(first["msg"]).removeprefix("Value error, ")
    return error_response(422, f"{field}: {message}" if field else message)


def printable(part: object) -> str:
    """Return a field name that UTF-8 can encode; clients may send lone surrogates."""
    return str(part)[:100].encode("utf-8", "replace").decode()


async def on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return error_response(error.status_code, str(error.detail), dict(error.headers or {}))


async def on_service_error(request: Request, error: Exception) -> Response:
    match error:
        case NotFoundError() | UnknownIdError():
            return error_response(404, str(error))
        case OverloadedError():
            return error_response(503, "busy: too many requests are queued; try again", RETRY_SOON)
        case StorageError():
            logger.error("%s", error)  # names folders of the server
            return error_response(503, "the index cannot be written now; try again", RETRY_SOON)
        case ServerError() | ReplacedIndexError():
            logger.error("%s", error)
            return error_response(503, "the index is unavailable; try again", RETRY_SOON)
        case DamagedIndexError():
            logger.error("%s", error)
            return error_response(500, "the index is damaged; see the server log")
        case UnprocessableError():
            return error_response(422, str(error))
        case _:
            logger.warning("%s", error)  # may name files of the server
            return error_response(422, "the request cannot be processed; see the server log")
