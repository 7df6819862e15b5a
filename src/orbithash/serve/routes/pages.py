"""The search page: a few files that come with the package, held in memory."""

import hashlib
from dataclasses import dataclass
from importlib.resources import files

from fastapi import APIRouter, Request, Response

from orbithash.serve.problems import UnknownItemError

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class PageFile:
    """A file of the page as it is sent."""

    content: bytes
    media_type: str
    etag: str


def page_routes() -> APIRouter:
    """The page at the root, and what it loads."""
    routes = APIRouter(include_in_schema=False)
    known = read_page()

    def sent(name: str, request: Request) -> Response:
        file = known.get(name)
        if file is None:
            raise UnknownItemError("there is no such file of the page")
        headers = {"ETag": file.etag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == file.etag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers={**headers, "Content-Type": file.media_type})

    @routes.get("/")
    async def get_page(request: Request) -> Response:
        return sent("index.html", request)

    @routes.get("/page/{name}")
    async def get_file(name: str, request: Request) -> Response:
        return sent(name, request)

    return routes


def read_page() -> dict[str, PageFile]:
    """The files by name: only what is here can be asked for."""
    result = {}
    for file in files("orbithash.serve").joinpath("page").iterdir():
        suffix = file.name[file.name.rfind(".") :]
        if suffix in TYPES:
            content = file.read_bytes()
            etag = f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
            result[file.name] = PageFile(content, TYPES[suffix], etag)
    return result
