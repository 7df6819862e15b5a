"""POST /search, /search/image and /search/batch."""

from typing import Annotated

from fastapi import APIRouter, Body, File, Form, Response, UploadFile

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

    @routes.post(
        "/search",
        summary="Search by id, code, bits, embedding, or an image in base64",
        response_model=SearchResponse,
    )
    async def search(
        request: Annotated[SearchRequest, Body(openapi_examples=EXAMPLES)],
    ) -> Response:
        """Return the nearest items. A search by id excludes the item itself."""
        (content,) = await service.search([request])
        return json_response(content)

    @routes.post(
        "/search/image", summary="Search by an uploaded image", response_model=SearchResponse
    )
    async def search_image(
        image: Annotated[UploadFile, File(description="An image file.")],
        k: Annotated[int | None, Form(ge=1, le=limits.k, description=K_DESCRIPTION)] = None,
        radius: Annotated[
            int | None, Form(ge=0, le=MAX_BITS, description=RADIUS_DESCRIPTION)
        ] = None,
        labels: Annotated[list[Label] | None, Form(max_length=MAX_LABELS)] = None,
        symmetric: Annotated[bool, Form(description=SYMMETRIC_DESCRIPTION)] = False,
    ) -> Response:
        """Return the items nearest to an image. The file's name is ignored; nothing is stored."""
        file = await image.read()
        content = await service.search_by_image(
            file, k=k, radius=radius, labels=labels or (), symmetric=symmetric
        )
        return json_response(content)

    @routes.post(
        "/search/batch", summary="Several searches at once", response_model=BatchSearchResponse
    )
    async def search_batch(request: BatchSearchRequest) -> Response:
        """Return the responses in the order of the searches."""
        if len(request.searches) > limits.batch:
            raise UnprocessableError(f"at most {limits.batch} searches per request are allowed")
        contents = await service.search(request.searches)
        return json_response(b'{"answers":[' + b",".join(contents) + b"]}")

    return routes


def json_response(content: bytes) -> Response:
    return Response(content, media_type="application/json")
