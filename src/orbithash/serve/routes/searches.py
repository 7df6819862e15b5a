"""Search by image, by id, by code."""

from typing import Annotated

from fastapi import APIRouter, Body, File, Form, UploadFile

from orbithash.codes import MAX_BITS
from orbithash.serve.problems import RefusedError
from orbithash.serve.schemas import (
    DEFAULT_K,
    Answer,
    Answers,
    BatchRequest,
    Label,
    Problem,
    SearchRequest,
)
from orbithash.serve.service import Service

EXAMPLES = {
    "more like this": {"value": {"id": 17, "k": 5}},
    "by code": {"value": {"code": "9f3c01d2a4b8", "radius": 8}},
    "by bits, of some labels": {"value": {"bits": "0110100110010110", "labels": ["wren", "robin"]}},
    "by image": {"value": {"image": "iVBORw0KGgo…", "k": 10}},
}


def search_routes(service: Service) -> APIRouter:
    """What finds items."""
    routes = APIRouter(tags=["search"], responses={404: {"model": Problem}})
    limits = service.settings.limits

    @routes.post("/search", summary="Search by id, code, bits, or an image in base64")
    async def search(
        request: Annotated[SearchRequest, Body(openapi_examples=EXAMPLES)],
    ) -> Answer:
        """The nearest items. An item that is asked with is no answer to itself."""
        (answer,) = await service.answer([request])
        return answer

    @routes.post("/search/image", summary="Search by an uploaded image")
    async def search_image(
        image: Annotated[UploadFile, File(description="An image file.")],
        k: Annotated[int, Form(ge=1, le=limits.k)] = DEFAULT_K,
        radius: Annotated[int | None, Form(ge=0, le=MAX_BITS)] = None,
        labels: Annotated[list[Label] | None, Form(max_length=100)] = None,
    ) -> Answer:
        """The nearest items of an image. Its name does not matter, and it is not kept."""
        content = await image.read()
        return await service.answer_image(content, k=k, radius=radius, labels=labels or [])

    @routes.post("/search/batch", summary="Several searches at once")
    async def search_batch(request: BatchRequest) -> Answers:
        """The answers in the order of the searches."""
        if len(request.searches) > limits.batch:
            raise RefusedError(f"at most {limits.batch} searches are taken at once")
        return Answers(answers=await service.answer(request.searches))

    return routes
