"""POST /search, /search/image and /search/batch."""

from typing import Annotated

from fastapi import APIRouter, Body, File, Form, UploadFile

from orbithash.codes import MAX_BITS
from orbithash.serve.error_responses import UnprocessableError
from orbithash.serve.schemas import (
    K_DESCRIPTION,
    MAX_LABELS,
    RADIUS_DESCRIPTION,
    SYMMETRIC_DESCRIPTION,
    BatchSearchRequest,
    BatchSearchResponse,
    ErrorResponse,
    Label,
    SearchRequest,
    SearchResponse,
)
from orbithash.serve.service import Service

EXAMPLES = {
    "more like this": {"value": {"id": 17, "k": 5}},
    "by code": {"value": {"code": "9f3c01d2a4b8", "radius": 8}},
    "by bits, of some labels": {"value": {"bits": "0110100110010110", "labels": ["wren", "robin"]}},
    "by image": {"value": {"image": "iVBORw0KGgo…", "k": 10}},
}


def search_routes(service: Service) -> APIRouter:
    routes = APIRouter(tags=["search"], responses={404: {"model": ErrorResponse}})
    limits = service.settings.limits

    @routes.post("/search", summary="Search by id, code, bits, embedding, or an image in base64")
    async def search(
        request: Annotated[SearchRequest, Body(openapi_examples=EXAMPLES)],
    ) -> SearchResponse:
        """Return the nearest items. A search by id excludes the item itself."""
        (response,) = await service.search([request])
        return response

    @routes.post("/search/image", summary="Search by an uploaded image")
    async def search_image(
        image: Annotated[UploadFile, File(description="An image file.")],
        k: Annotated[int | None, Form(ge=1, le=limits.k, description=K_DESCRIPTION)] = None,
        radius: Annotated[
            int | None, Form(ge=0, le=MAX_BITS, description=RADIUS_DESCRIPTION)
        ] = None,
        labels: Annotated[list[Label] | None, Form(max_length=MAX_LABELS)] = None,
        symmetric: Annotated[bool, Form(description=SYMMETRIC_DESCRIPTION)] = False,
    ) -> SearchResponse:
        """Return the items nearest to an image. The file's name is ignored; nothing is stored."""
        content = await image.read()
        return await service.search_by_image(
            content, k=k, radius=radius, labels=labels or (), symmetric=symmetric
        )

    @routes.post("/search/batch", summary="Several searches at once")
    async def search_batch(request: BatchSearchRequest) -> BatchSearchResponse:
        """Return the responses in the order of the searches."""
        if len(request.searches) > limits.batch:
            raise UnprocessableError(f"at most {limits.batch} searches per request are allowed")
        return BatchSearchResponse(answers=await service.search(request.searches))

    return routes
