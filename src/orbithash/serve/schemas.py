"""The JSON that goes in and out; the API's own description is made of these classes."""

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


def whole_number(given: Any) -> Any:
    """An id that was sent as text, which is how JavaScript can hold large ones."""
    is_number = isinstance(given, str) and re.fullmatch(r"0|-?[1-9][0-9]{0,18}", given)
    return int(given) if is_number else given


Id = Annotated[int, Field(ge=-(2**63), le=2**63 - 1, strict=True), BeforeValidator(whole_number)]
Label = Annotated[str, StringConstraints(min_length=1, max_length=500)]
Hex = Annotated[str, StringConstraints(pattern=r"^([0-9a-fA-F]{2})+$", max_length=MAX_BITS // 4)]
Bits = Annotated[
    str, StringConstraints(pattern=r"^[01]+$", min_length=MIN_BITS, max_length=MAX_BITS)
]
Base64 = Annotated[str, StringConstraints(min_length=1)]
FieldValue = Annotated[str, StringConstraints(max_length=2000)] | bool | int | float

DEFAULT_K = 20
MOST_NAMES = 20  # of one object
MOST_AT_ONCE = 1000  # in any list; the server's own limit of a batch comes on top


def few(most: int) -> BeforeValidator:
    """Refuses a list or an object by its size before each of its parts can be an error."""

    def check(given: Any) -> Any:
        if isinstance(given, list | dict) and len(given) > most:
            raise ValueError(f"has {len(given)} parts; at most {most} are taken")
        return given

    return BeforeValidator(check)


Labels = Annotated[list[Label], few(100)]


class Sent(BaseModel):
    """What a client sends; names that mean nothing are an error rather than ignored."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def has_few_names(cls, given: Any) -> Any:
        # Every unknown name would be an error of its own: a small body could keep the server busy.
        if isinstance(given, dict) and len(given) > MOST_NAMES:
            raise ValueError(f"has {len(given)} names; at most {MOST_NAMES} are taken")
        return given


class Problem(BaseModel):
    """Why a request was not answered."""

    detail: str


class Coded(Sent):
    """Something that has a code, or gets one."""

    image: Base64 | None = Field(default=None, description="An image file in base64.")
    code: Hex | None = Field(
        default=None, description="A code in hexadecimal, eight bits to two digits."
    )
    bits: Bits | None = Field(default=None, description="A code as zeros and ones.")


class SearchRequest(Coded):
    """One search, by exactly one of `image`, `id`, `code` and `bits`."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"id": 17, "k": 5},
                {"code": "9f3c01d2a4b8", "radius": 8, "labels": ["wren", "robin"]},
            ]
        },
    )

    id: Id | None = Field(default=None, description="The id of a stored item, which is left out.")
    k: int = Field(default=DEFAULT_K, ge=1, strict=True, description="How many to find at most.")
    radius: int | None = Field(
        default=None,
        ge=0,
        le=MAX_BITS,
        strict=True,
        description="Find only what is so many bits away.",
    )
    labels: Labels = Field(
        default=[], max_length=100, description="Find only items with one of these labels."
    )

    @model_validator(mode="after")
    def asks_one_thing(self) -> "SearchRequest":
        check_one_of(self, ("image", "id", "code", "bits"))
        return self


class BatchRequest(Sent):
    """Several searches in one request."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"searches": [{"id": 17, "k": 5}, {"id": 18, "k": 5}]}]},
    )

    searches: Annotated[list[SearchRequest], few(MOST_AT_ONCE)] = Field(
        min_length=1, max_length=MOST_AT_ONCE, fail_fast=True
    )


class NewItem(Coded):
    """An item to store, by exactly one of `image`, `code` and `bits`."""

    labels: Labels = Field(default=[], max_length=100)
    fields: Annotated[
        dict[Annotated[str, StringConstraints(max_length=100)], FieldValue], few(100)
    ] = Field(default={}, max_length=100, description="Anything else that should be kept with it.")

    @model_validator(mode="after")
    def has_one_code(self) -> "NewItem":
        check_one_of(self, ("image", "code", "bits"))
        return self


class NewItems(Sent):
    """Items to store together: all of them, or none."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"items": [{"code": "9f3c01d2a4b8", "labels": ["wren"]}]}]},
    )

    items: Annotated[list[NewItem], few(MOST_AT_ONCE)] = Field(
        min_length=1, max_length=MOST_AT_ONCE, fail_fast=True
    )


class Key(Sent):
    """A key, to be kept by a browser."""

    key: str = Field(min_length=1, max_length=1000)


class Stored(BaseModel):
    """The ids of what was stored, in the order in which it was sent."""

    ids: list[int]


class Item(BaseModel):
    """A stored item."""

    id: int
    name: str = Field(description="Where it is inside of its source.")
    labels: list[str]
    code: str
    fields: dict[str, Any] = {}
    picture: bool = Field(description="Whether its picture can be shown.")

    @computed_field(description="The id for JavaScript, which rounds numbers above 2^53.")  # type: ignore[prop-decorator]
    @property
    def text_id(self) -> str:
        return str(self.id)


class Hit(Item):
    """A stored item that answers a search."""

    rank: int
    distance: int = Field(description="Bits in which its code differs from the query's.")
    matches: bool | None = Field(
        description="Whether it shares a label with the query; null where that has none."
    )


class Query(BaseModel):
    """What was asked with."""

    code: str
    item: Item | None = Field(description="The stored item, in a search by id.")


class Took(BaseModel):
    """Milliseconds, waiting included."""

    encoding: float
    searching: float


class Answer(BaseModel):
    """What was found, nearest first; equal distances in the order of ids."""

    query: Query
    hits: list[Hit]
    n_bits: int
    took: Took


class Answers(BaseModel):
    """The answers of several searches, in their order."""

    answers: list[Answer]


class LabelCount(BaseModel):
    """How many items have a label."""

    label: str
    count: int


class ItemPair(BaseModel):
    """Two items of the sample."""

    first: Item
    second: Item
    distance: int


class About(BaseModel):
    """What one must know of the index to search it."""

    count: int
    n_bits: int
    takes_images: bool = Field(description="Whether it can be searched by image.")
    may_add: bool = Field(description="Whether items can be added and removed, with a key.")
    largest_k: int


class Stats(About):
    """What the index is like."""

    engine: str
    disk_bytes: int
    memory_bytes: int
    n_labels: int
    labels: list[LabelCount] = Field(description="The most frequent ones, in their order.")
    sample_size: int
    bit_balance: list[float] = Field(description="The share of ones at each place, in the sample.")
    distances: list[int] = Field(
        description="How many pairs of the sample are 0, 1, 2, … bits apart."
    )
    nearest: list[ItemPair]
    farthest: list[ItemPair]


class Sample(BaseModel):
    """Some items, chosen at random."""

    items: list[Item]


class Status(BaseModel):
    """How the server is."""

    status: str


def check_one_of(model: BaseModel, names: tuple[str, ...]) -> None:
    given = [name for name in names if getattr(model, name) is not None]
    if len(given) != 1:
        raise ValueError(f"give exactly one of {', '.join(names)}; got {len(given)}")
