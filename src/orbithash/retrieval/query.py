"""One query for command, server and Python: codes or stored items in, items with metadata out."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8

from orbithash.errors import InputError, UnknownIdError, UnknownLabelError
from orbithash.index import Ball, Index, Metadata, Where
from orbithash.index.checks import as_ids, check_radius

DEFAULT_K = 10


@dataclass(frozen=True, eq=False)
class Query:
    """A query by a code, or by the id of a stored item, which is left out of its own results.

    With a radius, all items within that Hamming distance are found, at most `k` if it is given.
    Without one, the `k` nearest, 10 by default.
    """

    code: UInt8[np.ndarray, " bytes"] | None = None
    id: int | None = None
    k: int | None = None
    radius: int | None = None
    where: Where | None = None


@dataclass(frozen=True)
class Hit:
    """A search result: one stored item."""

    rank: int  # from 1
    distance: int  # bits that differ
    id: int
    path: str
    labels: tuple[str, ...]

    @property
    def hamming(self) -> int:
        """The bits that differ."""
        return self.distance


@dataclass(frozen=True, eq=False)
class StoredItem:
    """An item of the index."""

    id: int
    code: UInt8[np.ndarray, " bytes"]
    metadata: Metadata


@dataclass(frozen=True, eq=False)
class Result:
    """The results of one query, nearest first; equal distances in the order of ids."""

    code: UInt8[np.ndarray, " bytes"]  # of the query
    item: StoredItem | None  # the query, if it is a stored item
    hits: tuple[Hit, ...]
    items: tuple[StoredItem, ...]  # of the hits


def find(index: Index, queries: Sequence[Query]) -> list[Result]:
    """Search for several queries; those with equal parameters are searched together.

    A filter by a label that no item has raises `UnknownLabelError`.
    """
    for query in queries:
        check_query(query)
    filters = [query.where for query in queries if query.where is not None]
    check_labels(index, [label for where in filters for label in where.labels])
    stored = stored_items(index, [query.id for query in queries if query.id is not None])
    codes = [
        stored[query.id].code if query.id is not None else given_code(query) for query in queries
    ]
    groups: dict[tuple[int | None, int | None, str], list[int]] = defaultdict(list)
    for number, query in enumerate(queries):
        groups[query.k, query.radius, repr(query.where)].append(number)
    found: list[list[tuple[int, int]]] = [[] for _ in queries]
    for (k, radius, _), numbers in groups.items():
        batch = np.stack([codes[number] for number in numbers])
        where = queries[numbers[0]].where
        if radius is not None:
            check_radius(radius)
        balls: Sequence[Ball]
        if radius is not None and k is None:
            balls = index.within(batch, radius, where)
        else:
            k = DEFAULT_K if k is None else k
            # One more, because a stored item finds itself.
            by_id = any(queries[number].id is not None for number in numbers)
            nearest = index.search(batch, k + by_id, where)
            balls = [Ball(*row) for row in zip(nearest.ids, nearest.distances, strict=True)]
        for number, ball in zip(numbers, balls, strict=True):
            found[number] = pairs_within(ball, radius, without=queries[number].id)[:k]
    present = still_stored(index, sorted({i for pairs in found for _, i in pairs}))
    return [
        result_of(query, code, stored, [pair for pair in pairs if pair[1] in present], present)
        for query, code, pairs in zip(queries, codes, found, strict=True)
    ]


def nearest_distance(
    index: Index,
    code: UInt8[np.ndarray, " bytes"],
    where: Where | None,
    *,
    without: int | None = None,
) -> int | None:
    """Return the bits between a code and the nearest item, or None if there is no item.

    `without` is the id of an item to leave out: the query itself.
    """
    nearest = index.search(code[None], 1 if without is None else 2, where)
    pairs = pairs_within(Ball(nearest.ids[0], nearest.distances[0]), None, without=without)
    return pairs[0][0] if pairs else None


def check_labels(index: Index, labels: Iterable[str]) -> None:
    """Raise for a label that no item has."""
    for label in dict.fromkeys(labels):
        if index.count(Where(labels=(label,))) == 0:
            raise UnknownLabelError(label)


def check_query(query: Query) -> None:
    """Raise unless k, radius and id are whole numbers in their ranges."""
    for name, least in {"k": 1, "radius": 0, "id": -(2**63)}.items():
        value = getattr(query, name)
        if value is not None and not (isinstance(value, int | np.integer) and value >= least):
            raise InputError(f"got {name}={value!r}; give a whole number from {least} on")
    if query.where is not None and not isinstance(query.where, Where):
        raise InputError(f"got where={query.where!r}; give Where(labels=('wren',)) or the like")


def result_of(
    query: Query,
    code: UInt8[np.ndarray, " bytes"],
    stored: dict[int, StoredItem],
    pairs: list[tuple[int, int]],
    present: dict[int, StoredItem],
) -> Result:
    items = tuple(present[i] for _, i in pairs)
    hits = tuple(
        Hit(rank, distance, i, item.metadata.path, item.metadata.labels)
        for rank, ((distance, i), item) in enumerate(zip(pairs, items, strict=True), start=1)
    )
    return Result(code, None if query.id is None else stored[query.id], hits, items)


def given_code(query: Query) -> UInt8[np.ndarray, " bytes"]:
    if query.code is None:
        raise InputError("got a query without a code and without an id; give one of them")
    return query.code


def pairs_within(ball: Ball, radius: int | None, *, without: int | None) -> list[tuple[int, int]]:
    """Return pairs of distance and id, without the query itself and places left empty (-1)."""
    pairs = zip(ball.distances.tolist(), ball.ids.tolist(), strict=True)
    return [
        (distance, i)
        for distance, i in pairs
        if distance >= 0 and i != without and (radius is None or distance <= radius)
    ]


def stored_items(index: Index, ids: Sequence[int]) -> dict[int, StoredItem]:
    """Return items by id; raise for an id that is not stored."""
    if not ids:
        return {}
    items = index.get(as_ids(ids))
    stored = map(StoredItem, ids, items.codes, items.metadata)
    return dict(zip(ids, stored, strict=True))


def still_stored(index: Index, ids: Sequence[int]) -> dict[int, StoredItem]:
    """Return items by id; those removed since they were found are left out."""
    try:
        return stored_items(index, ids)
    except UnknownIdError:
        # Bisect until the missing ids are alone.
        half = len(ids) // 2
        return still_stored(index, ids[:half]) | still_stored(index, ids[half:]) if half else {}
