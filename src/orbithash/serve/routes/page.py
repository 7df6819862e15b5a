"""The search page: its files, held in memory, and its session cookie."""

import hashlib
from dataclasses import dataclass
from importlib.resources import files

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from orbithash.serve.error_responses import NotFoundError
from orbithash.serve.limits.access import (
    equal_secrets,
    may_read,
    session_cookie,
    session_cookie_name,
)
from orbithash.serve.schemas import ErrorResponse, SessionRequest, StatusResponse
from orbithash.serve.settings import ServeSettings

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
SESSION_SECONDS = 30 * 24 * 3600


def page_routes() -> APIRouter:
    """The page at /, the description of the API at /docs, and their files below /page."""
    routes = APIRouter(include_in_schema=False)
    page_files = read_page_files()

    def respond(name: str, request: Request) -> Response:
        file = page_files.get(name)
        if file is None:
            raise NotFoundError("the page has no such file")
        headers = {"ETag": file.etag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == file.etag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers={**headers, "Content-Type": file.media_type})

    @routes.get("/")
    async def get_page(request: Request) -> Response:
        return respond("index.html", request)

    @routes.get("/docs")
    async def get_docs(request: Request) -> Response:
        return respond("docs.html", request)

    @routes.get("/page/{name}")
    async def get_file(name: str, request: Request) -> Response:
        return respond(name, request)

    return routes


def session_routes(settings: ServeSettings) -> APIRouter:
    """GET and POST /session: exchange a key for a cookie, so that the page need not store it."""
    routes = APIRouter(tags=["session"], responses={401: {"model": ErrorResponse}})

    @routes.get("/session", summary="Check whether this browser may search")
    async def get_session(request: Request) -> StatusResponse:
        if settings.allows_anonymous_read or may_read(request.headers, settings.keys):
            return StatusResponse(status="welcome")
        raise HTTPException(401, "a key is required")

    @routes.post("/session", summary="Exchange a key for a session cookie")
    async def post_session(
        key: SessionRequest, request: Request, response: Response
    ) -> StatusResponse:
        """The cookie allows searching, not writing, and becomes invalid when a key changes."""
        keys = settings.keys
        matches = [equal_secrets(key.key, each) for each in (keys.write, keys.read) if each]
        if not any(matches):
            raise HTTPException(401, "this key is not valid")
        response.set_cookie(
            session_cookie_name(keys),
            session_cookie(keys),
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return StatusResponse(status="welcome")

    return routes


@dataclass(frozen=True)
class PageFile:
    """A file of the page and its response headers."""

    content: bytes
    media_type: str
    etag: str


def read_page_files() -> dict[str, PageFile]:
    """Read all files of the page by name; only these can be requested."""
    result = {}
    for file in files("orbithash.serve").joinpath("page").iterdir():
        suffix = file.name[file.name.rfind(".") :]
        if suffix in MEDIA_TYPES:
            content = file.read_bytes()
            etag = f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
            result[file.name] = PageFile(content, MEDIA_TYPES[suffix], etag)
    return result
