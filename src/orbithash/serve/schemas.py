"""JSON bodies of requests and responses; the OpenAPI document is generated from these classes."""

import re
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    computed_field,
    model_validator,
)

from orbithash.codes import MAX_BITS, MIN_BITS
from orbithash.retrieval.query import DEFAULT_K, Ranking

MAX_FIELDS = 20  # keys of one JSON object
MAX_LIST_LENGTH = 1000  # of any list; `Limits.batch` is lower by default and applies as well
MAX_LABELS = 100
MAX_METADATA_FIELDS = 100

K_DESCRIPTION = (
    f"Maximum number of hits. Default: {DEFAULT_K}; with a radius, all items within it, up to "
    "the largest k of the server (`largest_k` of GET /about)."
)
SYMMETRIC_DESCRIPTION = "Rank by Hamming distance, also if the query is an image or an embedding."
RADIUS_DESCRIPTION = "Return all items within this Hamming distance; at most k if k is given."
COUNT_DESCRIPTION = "Number of items in the index."
LABELS_DESCRIPTION = "Of these, the number with one of the labels; null without labels."


def id_from_text(value: Any) -> Any:
    """Accept ids as strings, because JavaScript rounds integers above 2^53."""
    is_integer = isinstance(value, str) and re.fullmatch(r"0|-?[1-9][0-9]{0,18}", value)
    return int(value) if is_integer else value


def max_entries(limit: int) -> BeforeValidator:
    """Check the length of a list or object first.

    Field(max_length=…) checks it after the entries, each of which may be a validation error of
    its own; it is set as well, because it appears in the OpenAPI document.
    """

    def check(value: Any) -> Any:
        if isinstance(value, list | dict) and len(value) > limit:
            raise ValueError(f"has {len(value)} entries; at most {limit} are allowed")
        return value

    return BeforeValidator(check)


Id = Annotated[int, Field(ge=-(2**63), le=2**63 - 1, strict=True), BeforeValidator(id_from_text)]
Label = Annotated[str, StringConstraints(min_length=1, max_length=500)]
Labels = Annotated[list[Label], max_entries(MAX_LABELS)]
Hex = Annotated[str, StringConstraints(pattern=r"^([0-9a-fA-F]{2})+$", max_length=MAX_BITS // 4)]
Bits = Annotated[
    str, StringConstraints(pattern=r"^[01]+$", min_length=MIN_BITS, max_length=MAX_BITS)
]
Embedding = Annotated[
    list[Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]],
    Field(min_length=MIN_BITS, max_length=MAX_BITS, fail_fast=True),
    max_entries(MAX_BITS),
]
Base64 = Annotated[str, StringConstraints(min_length=1)]
FieldName = Annotated[str, StringConstraints(max_length=100)]
FieldValue = Annotated[str, StringConstraints(max_length=2000)] | bool | int | float


class ErrorResponse(BaseModel):
    """Why a request failed, in one sentence."""

    detail: str


# Requests


class RequestModel(BaseModel):
    """Base of all request bodies; unknown fields are rejected."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def check_field_count(cls, value: Any) -> Any:
        # Each unknown field is a validation error; without a limit, a small body takes long.
        if isinstance(value, dict) and len(value) > MAX_FIELDS:
            raise ValueError(f"has {len(value)} fields; at most {MAX_FIELDS} are allowed")
        return value


class CodeInput(RequestModel):
    """A code, or an image to encode; subclasses check that exactly one field is set."""

    image: Base64 | None = Field(default=None, description="An image file in base64.")
    code: Hex | None = Field(
        default=None, description="A code in hexadecimal, two digits per byte."
    )
    bits: Bits | None = Field(default=None, description="The same code as zeros and ones.")


class SearchRequest(CodeInput):
    """One search, by exactly one of `image`, `embedding`, `id`, `code` and `bits`.

    An image or an embedding ranks items by asymmetric distance, the others by Hamming distance.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"id": 17, "k": 5},
                {"code": "9f3c01d2a4b8", "radius": 8, "labels": ["wren", "robin"]},
            ]
        },
    )

    id: Id | None = Field(
        default=None, description="The id of a stored item, which is excluded from the hits."
    )
    embedding: Embedding | None = Field(
        default=None,
        description="Numbers from 0 to 1, one per bit: the output of the encoder.",
    )
    symmetric: bool = Field(default=False, strict=True, description=SYMMETRIC_DESCRIPTION)
    k: int | None = Field(default=None, ge=1, strict=True, description=K_DESCRIPTION)
    radius: int | None = Field(
        default=None,
        ge=0,
        le=MAX_BITS,
        strict=True,
        description=RADIUS_DESCRIPTION,
    )
    labels: Labels = Field(
        default=[],
        max_length=MAX_LABELS,
        description="Return only items with at least one of these labels.",
    )

    @model_validator(mode="after")
    def check_query(self) -> "SearchRequest":
        check_exactly_one(self, ("image", "embedding", "id", "code", "bits"))
        return self


class BatchSearchRequest(RequestModel):
    """Several searches in one request."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"searches": [{"id": 17, "k": 5}, {"id": 18, "k": 5}]}]},
    )

    searches: Annotated[list[SearchRequest], max_entries(MAX_LIST_LENGTH)] = Field(
        min_length=1, max_length=MAX_LIST_LENGTH, fail_fast=True
    )


class NewItem(CodeInput):
    """An item to add, by exactly one of `image`, `code` and `bits`."""

    labels: Labels = Field(default=[], max_length=MAX_LABELS)
    fields: Annotated[dict[FieldName, FieldValue], max_entries(MAX_METADATA_FIELDS)] = Field(
        default={},
        max_length=MAX_METADATA_FIELDS,
        description="Further metadata, stored with the item.",
    )

    @model_validator(mode="after")
    def check_code(self) -> "NewItem":
        check_exactly_one(self, ("image", "code", "bits"))
        return self


class AddItemsRequest(RequestModel):
    """Items to add: all of them or none."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"items": [{"code": "9f3c01d2a4b8", "labels": ["wren"]}]}]},
    )

    items: Annotated[list[NewItem], max_entries(MAX_LIST_LENGTH)] = Field(
        min_length=1, max_length=MAX_LIST_LENGTH, fail_fast=True
    )


class SessionRequest(RequestModel):
    """An API key to exchange for a session cookie."""

    key: str = Field(min_length=1, max_length=1000)


def check_exactly_one(model: BaseModel, names: tuple[str, ...]) -> None:
    n_set = sum(getattr(model, name) is not None for name in names)
    if n_set != 1:
        raise ValueError(f"give exactly one of {', '.join(names)}; got {n_set}")


# Responses


class Item(BaseModel):
    """A stored item."""

    id: int
    name: str = Field(description="Path relative to the folder it was indexed from.")
    labels: list[str]
    code: str
    fields: dict[str, Any] = {}
    picture: bool = Field(description="Whether its image is available.")

    @computed_field(description="The id as a string: JavaScript rounds integers above 2^53.")  # type: ignore[prop-decorator]
    @property
    def text_id(self) -> str:
        return str(self.id)


class Hit(Item):
    """A stored item found by a search."""

    rank: int
    distance: int | float = Field(description="Distance to the query, by the ranking.")
    hamming: int = Field(description="Number of bits in which its code and the query's differ.")
    matches: bool | None = Field(
        description="Whether it shares a label with the query; null if the query has no labels."
    )


class QueryInfo(BaseModel):
    """The query of a search."""

    code: str
    embedding: list[float] | None = Field(
        description="The embedding, if it ranked the hits: search by it for the same ranking."
    )
    item: Item | None = Field(description="The stored item, in a search by id.")


class Timing(BaseModel):
    """Durations in milliseconds, waiting included."""

    encoding: float = Field(description="Milliseconds to decode and encode images.")
    searching: float = Field(description="Milliseconds to search and to read the hits.")


class SearchResponse(BaseModel):
    """The hits, nearest first; equal distances are ordered by id."""

    query: QueryInfo
    ranking: Ranking = Field(
        description="`hamming`: the number of bits that differ. `asymmetric`: the sum of "
        "|embedding − bit|, in which bits count less if the query is uncertain of them."
    )
    hits: list[Hit]
    n_bits: int
    count: int = Field(description=COUNT_DESCRIPTION)
    n_with_labels: int | None = Field(description=LABELS_DESCRIPTION)
    nearest_distance: int | None = Field(
        description="If nothing is within the radius: Hamming distance of the nearest item with "
        "one of the labels. Otherwise null."
    )
    took: Timing


class BatchSearchResponse(BaseModel):
    """The responses to several searches, in the order of the request."""

    answers: list[SearchResponse]


class AddItemsResponse(BaseModel):
    """The ids of the added items, in the order of the request."""

    ids: list[int]


class IndexInfo(BaseModel):
    """What a client needs to know to search the index."""

    count: int = Field(description=COUNT_DESCRIPTION)
    n_bits: int
    takes_images: bool = Field(description="Whether the index can be searched by image.")
    may_add: bool = Field(
        description="Whether the server accepts additions and removals, with the write key."
    )
    largest_k: int


class LabelCount(BaseModel):
    """The number of items with a label."""

    label: str
    count: int


class ItemPair(BaseModel):
    """Two items of the random sample behind the statistics."""

    first: Item
    second: Item
    distance: int


class IndexStatistics(IndexInfo):
    """Statistics of the index; those of bits and distances come from a random sample."""

    engine: str
    disk_bytes: int
    memory_bytes: int
    n_labels: int
    labels: list[LabelCount] = Field(description="The most frequent labels, most frequent first.")
    sample_size: int
    bit_balance: list[float] = Field(description="Fraction of ones at each bit position.")
    distances: list[int] = Field(
        description="Histogram: the number of pairs at Hamming distance 0, 1, 2, …"
    )
    nearest: list[ItemPair] = Field(description="The nearest pairs, each item at most once.")
    farthest: list[ItemPair] = Field(description="The farthest pairs, each item at most once.")


class SampleResponse(BaseModel):
    """Items drawn at random."""

    items: list[Item]
    count: int = Field(description=COUNT_DESCRIPTION)
    n_with_labels: int | None = Field(description=LABELS_DESCRIPTION)


class GroupItem(Item):
    """An item of a group of near-duplicates."""

    distance: int = Field(description="Hamming distance between its code and the first item's.")


class ItemGroup(BaseModel):
    """A group of near-duplicates."""

    size: int = Field(description="Number of its items, of which some are in `items`.")
    spread: int = Field(description="The largest Hamming distance of an item from the first.")
    items: list[GroupItem] = Field(description="In the order of ids.")


class DuplicatesResponse(BaseModel):
    """Groups of near-duplicates, the largest first, then by their smallest id."""

    radius: int
    largest_radius: int = Field(description="The largest radius that the server allows.")
    n_groups: int = Field(description="Number of groups, of which some are in `groups`.")
    n_items: int = Field(description="Number of items in all groups.")
    n_bits: int
    count: int = Field(description=COUNT_DESCRIPTION)
    groups: list[ItemGroup]


class StatusResponse(BaseModel):
    """The state of the server or session: `ok`, `ready` or `welcome`."""

    status: str
