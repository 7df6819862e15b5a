"""Single items: what is known of them, their pictures, and adding and removing."""

import hashlib
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Body, File, Form, Path, Request, Response, UploadFile
from fastapi.responses import FileResponse
from starlette.types import Receive, Scope, Send

from orbithash.serve.additions import Addition, add, remove
from orbithash.serve.pictures import file_of, type_of
from orbithash.serve.problems import RefusedError, UnknownItemError
from orbithash.serve.questions import stored
from orbithash.serve.schemas import Item, Label, NewItems, Problem, Stored
from orbithash.serve.service import Service, from_base64

ItemId = Annotated[int, Path(ge=-(2**63), le=2**63 - 1, description="The id of an item.")]

PICTURE = {200: {"content": {"image/*": {}}, "description": "The picture."}}
KEEP = {"Cache-Control": "private, max-age=300"}  # after that the browser asks again
NEEDS_KEY = {401: {"model": Problem}, 403: {"model": Problem}}


class Original(FileResponse):
    """A file as it is; not found if it has gone since it was looked at."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except RuntimeError:  # what Starlette raises when there is no such file
            raise UnknownItemError("there is no picture of this item any more") from None


def item_routes(service: Service) -> APIRouter:
    """What is about items by their ids."""
    routes = APIRouter(prefix="/items", tags=["items"], responses={404: {"model": Problem}})
    index, settings = service.index, service.settings

    @routes.get("/{identifier}", summary="What is known of an item")
    async def get_item(identifier: ItemId) -> Item:
        def look() -> Item:
            return service.item(identifier, *stored(index, [identifier])[identifier])

        return await service.searching.run(look)

    def file(identifier: int) -> FilePath:
        found = file_of(stored(index, [identifier])[identifier][1], settings.images)
        if found is None:
            raise UnknownItemError(f"there is no picture of item {identifier} here")
        return found

    @routes.get(
        "/{identifier}/thumbnail",
        summary="A small picture",
        response_class=Response,
        responses=PICTURE,  # type: ignore[arg-type]
    )
    async def get_thumbnail(identifier: ItemId, request: Request) -> Response:
        """A JPEG of at most 320 pixels a side."""
        content = await service.showing.run(lambda: service.thumbnails.of(file(identifier)))
        etag = f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
        headers = {"ETag": etag, **KEEP}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type="image/jpeg", headers=headers)

    @routes.get(
        "/{identifier}/image",
        summary="The original",
        response_class=Response,
        responses=PICTURE,  # type: ignore[arg-type]
    )
    async def get_image(identifier: ItemId) -> Response:
        """The file as it was indexed, if it is a picture."""

        def look() -> tuple[FilePath, str]:
            found = file(identifier)
            return found, type_of(found)

        found, media_type = await service.showing.run(look)
        return Original(found, media_type=media_type, headers=KEEP)

    @routes.post("", status_code=201, summary="Add items", responses=NEEDS_KEY)  # type: ignore[arg-type]
    async def add_items(request: Annotated[NewItems, Body()]) -> Stored:
        """Store items, all or none, under new ids. Needs the key."""
        if len(request.items) > settings.limits.batch:
            raise RefusedError(f"at most {settings.limits.batch} items are taken at once")
        codes = await service.codes_of(request.items)
        additions = [
            Addition(
                code,
                tuple(item.labels),
                dict(item.fields),
                from_base64(item.image) if item.image else b"",
            )
            for code, item in zip(codes, request.items, strict=True)
        ]
        return Stored(ids=await service.writing.run(add, index, additions, settings.uploads))

    @routes.post("/image", status_code=201, summary="Add an image", responses=NEEDS_KEY)  # type: ignore[arg-type]
    async def add_image(
        image: Annotated[UploadFile, File(description="An image file.")],
        labels: Annotated[list[Label] | None, Form(max_length=100)] = None,
    ) -> Stored:
        """Encode and store an uploaded image under a new id. Needs the key."""
        content = await image.read()
        (code,) = await service.encode([content])
        additions = [Addition(code, tuple(labels or ()), image=content)]
        return Stored(ids=await service.writing.run(add, index, additions, settings.uploads))

    @routes.delete(
        "/{identifier}",
        status_code=204,
        summary="Remove an item",
        responses=NEEDS_KEY,  # type: ignore[arg-type]
    )
    async def remove_item(identifier: ItemId) -> None:
        """Forget an item. Its file stays where it is. Needs the key."""
        await service.writing.run(remove, index, identifier)

    return routes
