"""The interface of search engines and indexes: items, filters, results and protocols."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Float64, Int64, UInt8
from numpy.typing import ArrayLike

from orbithash.errors import InputError

if TYPE_CHECKING:
    from orbithash.index.duplicates import DuplicateGroups

Value = str | int | float | bool


@dataclass(frozen=True)
class Metadata:
    """An item's data besides its code."""

    path: str = ""  # of its file, or its name in the source
    labels: tuple[str, ...] = ()
    source: str = ""  # that it was indexed from
    stamp: str = ""  # state of the file when it was encoded; it differs once the file has changed
    fields: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Written out, because a million items create a million of these.
        if not (
            isinstance(self.path, str)
            and isinstance(self.source, str)
            and isinstance(self.stamp, str)
        ):
            raise InputError(
                f"path={self.path!r}, source={self.source!r}, stamp={self.stamp!r}; each must be "
                "a string: pass str(path), and leave unknown ones out"
            )
        check_label_tuple(self.labels)
        if self.fields:
            check_fields(self.fields)


@dataclass(frozen=True)
class Where:
    """A filter of a search: items with any of these labels and all of these fields."""

    labels: tuple[str, ...] = ()  # empty: any labels
    fields: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_label_tuple(self.labels)
        check_fields(self.fields)

    def admits(self, metadata: Metadata) -> bool:
        has_label = not self.labels or not set(self.labels).isdisjoint(metadata.labels)
        return has_label and has_fields(metadata.fields, self.fields)


@dataclass(frozen=True, eq=False)
class Items:
    """Stored items, in the order of ids or as requested."""

    ids: Int64[np.ndarray, " n"]
    codes: UInt8[np.ndarray, "n bytes"]
    metadata: tuple[Metadata, ...]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The nearest items of each query, nearest first; equal distances in the order of ids.

    Distances are whole numbers of bits for queries that are codes, and floats for embeddings.
    """

    ids: Int64[np.ndarray, "queries k"]
    distances: Int64[np.ndarray, "queries k"] | Float64[np.ndarray, "queries k"]

    def balls(self, radius: int) -> list["Ball"]:
        """Return the items within a radius, by their distances."""
        # Places that an approximate engine leaves empty have distance -1.
        is_near = (self.distances >= 0) & (self.distances <= radius)
        rows = zip(self.ids, self.distances, is_near, strict=True)
        return [Ball(ids[near], distances[near]) for ids, distances, near in rows]


@dataclass(frozen=True, eq=False)
class Ball:
    """Items within a radius of one query, nearest first; equal distances in the order of ids."""

    ids: Int64[np.ndarray, " n"]
    distances: Int64[np.ndarray, " n"] | Float64[np.ndarray, " n"]


@dataclass(frozen=True)
class IndexStats:
    """Size of an index, in items, memory and disk space."""

    engine: str
    n_bits: int
    count: int
    memory_bytes: int = 0  # of codes and ids loaded for search
    disk_bytes: int = 0
    recall: float | None = None  # of an approximate engine, measured when it was built
    recall_at: int | None = None  # the k of recall@k
    recall_asymmetric: float | None = None  # the same for queries that are embeddings


@runtime_checkable
class SearchEngine(Protocol):
    """Stores codes with metadata, and finds the codes nearest to a query.

    Ids are any int64. Arguments are arrays, or anything that numpy converts, such as lists.

    A query is a code (uint8, or integers in lists) or an embedding (floats). A code is compared by
    Hamming distance, an embedding by asymmetric distance: the sum of |embedding − bit|.

    A search returns fewer than k columns if fewer items are stored or admitted. An approximate
    engine may find fewer for some queries, whose rows then end in distance -1 and id -1.
    """

    @property
    def n_bits(self) -> int: ...

    def __len__(self) -> int: ...

    def add(
        self,
        ids: ArrayLike | None = None,
        codes: ArrayLike | None = None,
        metadata: Sequence[Metadata] | None = None,
    ) -> Int64[np.ndarray, " n"]:
        """Store items under ids that are not in use, by default the next ones; return the ids."""

    def update(
        self, ids: ArrayLike, codes: ArrayLike, metadata: Sequence[Metadata] | None = None
    ) -> None:
        """Store items, replacing those with the same ids."""

    def remove(self, ids: ArrayLike) -> int:
        """Remove items and return how many there were; unknown ids are ignored."""

    def get(self, ids: ArrayLike) -> Items:
        """Return these items, in this order."""

    def search(self, queries: ArrayLike, k: int, where: Where | None = None) -> Neighbours:
        """Return the k nearest items of each query: a code, or an embedding."""

    def within(
        self, queries: ArrayLike, radius: int, where: Where | None = None, k: int | None = None
    ) -> list[Ball]:
        """Return the items at most `radius` bits away from each query, at most the k nearest.

        The radius counts bits, also for embeddings; these order the items.
        """

    def duplicates(self, radius: int, where: Where | None = None) -> "DuplicateGroups":
        """Return the groups of items that steps of at most `radius` bits connect."""

    def next_id(self) -> int:
        """Return an id above all ids in use; raise NoIdsLeftError if there is none."""

    def iterate(self, batch_size: int = 4096) -> Iterator[Items]:
        """Iterate over all items in the order of ids, in batches."""

    def stats(self) -> IndexStats:
        """Return the size of the index."""

    def close(self) -> None:
        """Close files and connections; the index cannot be used afterwards."""


@runtime_checkable
class Index(SearchEngine, Protocol):
    """A persistent search engine, which also stores its items' sources and their encoder.

    A change is durable once the call returns.
    """

    def known(self, source: str) -> dict[str, tuple[int, str]]:
        """Return id and stamp of every item that was indexed from a source, by path."""

    def encoder(self) -> bytes:
        """Return the file of the encoder that computed the codes."""

    def count(self, where: Where) -> int:
        """Return the number of items that a filter admits."""

    def sample(self, n: int, *, seed: int, where: Where | None = None) -> Items:
        """Return n random items, or all if there are fewer, in the order of ids."""

    def label_counts(self) -> dict[str, int]:
        """Return the number of items with each label."""

    def version(self) -> int | None:
        """Return a number that differs after every change, or None if that is not known."""

    def __enter__(self) -> "Index": ...

    def __exit__(self, *error: object) -> None: ...


Opened = TypeVar("Opened", bound="ClosesOnExit")


class ClosesOnExit(ABC):
    """A context manager that closes the object at the end of the `with` block."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self: Opened) -> Opened:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def check_label_tuple(labels: object) -> None:
    """Raise unless these are labels; a single string would pass for its letters."""
    if isinstance(labels, tuple):
        for label in labels:
            if not isinstance(label, str):
                break
        else:
            return
    raise InputError(f"labels={labels!r}; give a tuple of strings, such as labels=('wren',)")


def check_fields(fields: object) -> None:
    if not isinstance(fields, Mapping):
        raise InputError(f"fields={fields!r}; give a dictionary of names and values")
    for name, value in fields.items():
        finite = not isinstance(value, float) or math.isfinite(value)
        if not (isinstance(name, str) and isinstance(value, Value) and finite):
            raise InputError(
                f"the field {name!r} is {value!r}; name fields by strings, and give them "
                "strings, finite numbers or booleans"
            )


def has_fields(stored: Mapping[str, Value], wanted: Mapping[str, Value]) -> bool:
    return all(name in stored and same_value(stored[name], value) for name, value in wanted.items())


def same_value(stored: Value, wanted: Value) -> bool:
    # In Python True equals 1; in metadata they are different values.
    return stored == wanted and isinstance(stored, bool) == isinstance(wanted, bool)


NO_METADATA = Metadata()
