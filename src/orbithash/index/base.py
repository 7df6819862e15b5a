"""What every search engine offers, what it stores, and what a search returns."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Int64, UInt8

from orbithash.errors import InputError

Value = str | int | float | bool


@dataclass(frozen=True)
class Metadata:
    """What is known of an item besides its code."""

    path: str = ""  # of its file, or whatever names it in its source
    labels: tuple[str, ...] = ()
    source: str = ""  # what it was indexed from
    stamp: str = ""  # what the file was when it was encoded; a changed file has another
    fields: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Written out, because a million of these are made for a million items.
        if not (
            isinstance(self.path, str)
            and isinstance(self.source, str)
            and isinstance(self.stamp, str)
        ):
            raise InputError(
                f"path={self.path!r}, source={self.source!r}, stamp={self.stamp!r}; each must be "
                "a string: of a path give str(path), and nothing for what is not known"
            )
        check_labels(self.labels)
        if self.fields:
            check_fields(self.fields)


@dataclass(frozen=True)
class Where:
    """Which items a search may find: any of these labels, and all of these fields."""

    labels: tuple[str, ...] = ()  # none means that labels do not matter
    fields: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_labels(self.labels)
        check_fields(self.fields)

    def admits(self, metadata: Metadata) -> bool:
        return (not self.labels or not set(self.labels).isdisjoint(metadata.labels)) and all(
            name in metadata.fields and equal(metadata.fields[name], value)
            for name, value in self.fields.items()
        )


def check_labels(labels: object) -> None:
    """Raise unless these are labels; a string alone would pass for its letters."""
    if isinstance(labels, tuple):
        for label in labels:
            if not isinstance(label, str):
                break
        else:
            return
    raise InputError(f"labels={labels!r}; give a tuple of strings, as in labels=('wren',)")


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


def equal(stored: Value, wanted: Value) -> bool:
    # To Python True is 1; to whoever wrote the metadata it is not.
    return stored == wanted and isinstance(stored, bool) == isinstance(wanted, bool)


NOTHING_KNOWN = Metadata()


@dataclass(frozen=True, eq=False)
class Items:
    """Stored items, in the order of ids unless they were asked for one by one."""

    ids: Int64[np.ndarray, " n"]
    codes: UInt8[np.ndarray, "n bytes"]
    metadata: tuple[Metadata, ...]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The nearest items of each query, nearest first; equal distances in the order of ids."""

    ids: Int64[np.ndarray, "queries k"]
    distances: Int64[np.ndarray, "queries k"]


@dataclass(frozen=True, eq=False)
class Ball:
    """All items within a radius of one query, nearest first; equal distances in order of ids."""

    ids: Int64[np.ndarray, " n"]
    distances: Int64[np.ndarray, " n"]


@dataclass(frozen=True)
class IndexStats:
    """How much an index holds, and what that takes."""

    engine: str
    n_bits: int
    count: int
    memory_bytes: int = 0  # of codes and ids that are held ready for search
    disk_bytes: int = 0
    recall: float | None = None  # of an engine that is not exact, once it was built and measured
    recall_at: int | None = None  # neighbours that recall is of


@runtime_checkable
class SearchEngine(Protocol):
    """Stores codes with metadata, and finds those nearest to a query's by Hamming distance.

    Ids are any int64. Fewer than k columns come back when fewer items are stored or admitted; an
    engine that is not exact may find fewer for some queries, which end in distance -1 and id -1.
    """

    @property
    def n_bits(self) -> int: ...

    def __len__(self) -> int: ...

    def add(
        self,
        ids: Int64[np.ndarray, " n"],
        codes: UInt8[np.ndarray, "n bytes"],
        metadata: Sequence[Metadata] | None = None,
    ) -> None:
        """Store items under ids that are not in use yet."""

    def update(
        self,
        ids: Int64[np.ndarray, " n"],
        codes: UInt8[np.ndarray, "n bytes"],
        metadata: Sequence[Metadata] | None = None,
    ) -> None:
        """Store items in the place of those with the same ids, if there are any."""

    def remove(self, ids: Int64[np.ndarray, " n"]) -> int:
        """Forget these items; those that are not there do not matter. Returns how many were."""

    def get(self, ids: Int64[np.ndarray, " n"]) -> Items:
        """These items, in the order asked for."""

    def search(
        self, codes: UInt8[np.ndarray, "queries bytes"], k: int, where: Where | None = None
    ) -> Neighbours:
        """The k nearest items of each query."""

    def within(
        self, codes: UInt8[np.ndarray, "queries bytes"], radius: int, where: Where | None = None
    ) -> list[Ball]:
        """The items at most `radius` bits away from each query."""

    def iterate(self, batch_size: int = 4096) -> Iterator[Items]:
        """All items in the order of ids, some at a time."""

    def stats(self) -> IndexStats:
        """How much it holds, and what that takes."""

    def close(self) -> None:
        """Let go of files and connections; nothing can be asked afterwards."""


@runtime_checkable
class Index(SearchEngine, Protocol):
    """A search engine that lasts: it knows what its items were indexed from, and by which encoder.

    Every call that changes it has stored what it was given once it returns.
    """

    def known(self, source: str) -> dict[str, tuple[int, str]]:
        """Id and stamp of everything that was indexed from a source, by path."""

    def next_id(self) -> int:
        """An id that is not in use, and neither is any above it; NoIdsLeftError if none is."""

    def encoder(self) -> bytes:
        """The file of the encoder that made the codes, as it was given."""

    def sample(self, n: int, *, seed: int) -> Items:
        """So many items chosen at random, or all of them, in the order of ids."""

    def label_counts(self) -> dict[str, int]:
        """How many items have each label."""

    def __enter__(self) -> "Index": ...

    def __exit__(self, *error: object) -> None: ...


Opened = TypeVar("Opened", bound="ClosedAfterwards")


class ClosedAfterwards(ABC):
    """Can be used in a `with` statement, and is closed at its end."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self: Opened) -> Opened:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
