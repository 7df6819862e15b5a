"""Routes below /items: read, add and remove items, and download their images.

`NotFoundError` becomes a 404 response, `UnprocessableError` a 422. The middleware checks the write
key before a route is called.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Body, File, Form, Path, Request, Response, UploadFile
from fastapi.responses import FileResponse
from jaxtyping import UInt8
from starlette.types import Receive, Scope, Send

from orbithash.errors import NoIdsLeftError
from orbithash.index import Index, Metadata, add_under_new_ids
from orbithash.index.base import Value
from orbithash.retrieval.query import code_of, stored_items
from orbithash.serve.error_responses import NotFoundError, UnprocessableError
from orbithash.serve.images import image_file, image_media_type, store_upload
from orbithash.serve.schemas import (
    MAX_LABELS,
    AddItemsRequest,
    AddItemsResponse,
    ErrorResponse,
    Item,
    Label,
)
from orbithash.serve.service import Service, decode_base64

# In a path an id is always text; `schemas.Id` is for JSON, where numbers and strings differ.
ItemId = Annotated[int, Path(ge=-(2**63), le=2**63 - 1, description="The id of an item.")]

IMAGE_RESPONSE = {200: {"content": {"image/*": {}}, "description": "The image."}}
KEY_RESPONSES = {401: {"model": ErrorResponse}, 403: {"model": ErrorResponse}}
CACHE_HEADERS = {"Cache-Control": "private, max-age=300"}


def item_routes(service: Service) -> APIRouter:
    routes = APIRouter(prefix="/items", tags=["items"], responses={404: {"model": ErrorResponse}})
    index, settings = service.index, service.settings

    @routes.get("/{identifier}", summary="Get an item")
    async def get_item(identifier: ItemId) -> Item:
        def load() -> Item:
            return service.item(stored_items(index, [identifier])[identifier])

        return await service.search_pool.run(load)

    def existing_image(identifier: int) -> FilePath:
        metadata = stored_items(index, [identifier])[identifier].metadata
        file = image_file(metadata, settings.images)
        if file is None:
            raise NotFoundError(f"item {identifier} has no image file on this server")
        return file

    @routes.get(
        "/{identifier}/thumbnail",
        summary="Get a thumbnail",
        response_class=Response,
        responses=IMAGE_RESPONSE,  # type: ignore[arg-type]
    )
    async def get_thumbnail(identifier: ItemId, request: Request) -> Response:
        """A JPEG of at most 320 pixels a side."""

        def load() -> bytes:
            return service.thumbnails.get(existing_image(identifier))

        content = await service.image_pool.run(load)
        etag = f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
        headers = {"ETag": etag, **CACHE_HEADERS}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type="image/jpeg", headers=headers)

    @routes.get(
        "/{identifier}/image",
        summary="Get the original image",
        response_class=Response,
        responses=IMAGE_RESPONSE,  # type: ignore[arg-type]
    )
    async def get_image(identifier: ItemId) -> Response:
        """The file that was indexed, if it is an image."""

        def load() -> tuple[FilePath, str]:
            file = existing_image(identifier)
            return file, image_media_type(file)

        file, media_type = await service.image_pool.run(load)
        return OriginalFileResponse(file, media_type=media_type, headers=CACHE_HEADERS)

    @routes.post("", status_code=201, summary="Add items", responses=KEY_RESPONSES)  # type: ignore[arg-type]
    async def add_items(request: Annotated[AddItemsRequest, Body()]) -> AddItemsResponse:
        """Add items under new ids, all or none. Requires the write key."""
        if len(request.items) > settings.limits.batch:
            raise UnprocessableError(
                f"at most {settings.limits.batch} items per request are allowed"
            )
        codes = await service.codes_of(request.items)

        def store() -> list[int]:
            additions = [
                Addition(
                    code,
                    tuple(item.labels),
                    dict(item.fields),
                    # Decoded again: the encoder's thread keeps one image at a time in memory.
                    decode_base64(item.image) if item.image else b"",
                )
                for code, item in zip(codes, request.items, strict=True)
                if code is not None
            ]
            return add(index, additions, settings.uploads)

        return AddItemsResponse(ids=await service.write_pool.run(store))

    @routes.post("/image", status_code=201, summary="Add an image", responses=KEY_RESPONSES)  # type: ignore[arg-type]
    async def add_image(
        image: Annotated[UploadFile, File(description="An image file.")],
        labels: Annotated[list[Label] | None, Form(max_length=MAX_LABELS)] = None,
    ) -> AddItemsResponse:
        """Encode an image and add it under a new id. Requires the write key.

        The file itself is stored only if the server has a folder for uploads.
        """
        content = await image.read()
        (embedding,) = await service.embed_images([content])
        code = code_of(embedding)
        additions = [Addition(code, tuple(labels or ()), image=content)]
        ids = await service.write_pool.run(add, index, additions, settings.uploads)
        return AddItemsResponse(ids=ids)

    @routes.delete(
        "/{identifier}",
        status_code=204,
        summary="Remove an item",
        responses=KEY_RESPONSES,  # type: ignore[arg-type]
    )
    async def remove_item(identifier: ItemId) -> None:
        """Remove an item; its image file is kept. Requires the write key."""
        await service.write_pool.run(remove, index, identifier)

    return routes


@dataclass(frozen=True)
class Addition:
    """An item to add, with the image file it was encoded from, if any."""

    code: UInt8[np.ndarray, " bytes"]
    labels: tuple[str, ...] = ()
    fields: dict[str, Value] = field(default_factory=dict)
    image: bytes = b""


def add(index: Index, additions: Sequence[Addition], uploads: FilePath | None) -> list[int]:
    """Add items together and return their ids; images are stored in `uploads`, if given."""
    # Without a source: of a source, no path is stored twice, and an image may be added twice.
    metadata = [
        Metadata(
            path=store_upload(addition.image, uploads) if uploads and addition.image else "",
            labels=addition.labels,
            fields=addition.fields,
        )
        for addition in additions
    ]
    codes = np.stack([addition.code for addition in additions])
    try:
        return [int(i) for i in add_under_new_ids(index, codes, metadata)]
    except NoIdsLeftError as error:
        raise UnprocessableError(str(error)) from None


def remove(index: Index, identifier: int) -> None:
    """Remove an item; its file stays, because other items may share it."""
    if index.remove(np.array([identifier], dtype=np.int64)) == 0:
        raise NotFoundError(f"there is no item with id {identifier}")


class OriginalFileResponse(FileResponse):
    """A file response that is a 404 if the file was deleted in the meantime."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except RuntimeError:  # raised by Starlette if the file does not exist
            raise NotFoundError("the image file of this item no longer exists") from None
