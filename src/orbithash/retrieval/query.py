"""One query for command, server and Python: embeddings, codes or ids in, items with metadata out.

An embedding is compared with the stored codes by asymmetric distance; a code, or a stored item,
by Hamming distance.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Float, Int64, Shaped, UInt8

from orbithash.codes import binarize, pack
from orbithash.errors import InputError, UnknownIdError, UnknownLabelError
from orbithash.index import Index, Metadata, SearchEngine, Where
from orbithash.index.checks import as_ids

DEFAULT_K = 10

Ranking = Literal["hamming", "asymmetric"]


@dataclass(frozen=True, eq=False)
class Query:
    """A query by an embedding, a code, or the id of a stored item, which is not its own result.

    With a radius, all items within that Hamming distance are found, at most `k` if it is given.
    Without one, the `k` nearest, 10 by default. An embedding ranks them by asymmetric distance.
    """

    code: UInt8[np.ndarray, " bytes"] | None = None
    id: int | None = None
    k: int | None = None
    radius: int | None = None
    where: Where | None = None
    embedding: Float[np.ndarray, " bits"] | None = None

    @property
    def ranking(self) -> Ranking:
        return "hamming" if self.embedding is None else "asymmetric"


def by_embedding(query: Query, embedding: Float[np.ndarray, " bits"], *, symmetric: bool) -> Query:
    """Return the query by an embedding, or by its code if it is symmetric."""
    if symmetric:
        return replace(query, code=code_of(embedding))
    return replace(query, embedding=embedding)


def code_of(embedding: Float[np.ndarray, " bits"]) -> UInt8[np.ndarray, " bytes"]:
    code: np.ndarray = pack(binarize(embedding[None]))[0]
    return code


@dataclass(frozen=True)
class Hit:
    """A search result: one stored item."""

    rank: int  # from 1
    distance: float  # of the ranking; a whole number if that is Hamming distance
    hamming: int  # bits that differ
    id: int
    path: str
    labels: tuple[str, ...]


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
    ranking: Ranking


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
    groups: dict[tuple[int | None, int | None, str, Ranking], list[int]] = defaultdict(list)
    for number, query in enumerate(queries):
        groups[query.k, query.radius, repr(query.where), query.ranking].append(number)
    found: list[list[tuple[float, int]]] = [[] for _ in queries]
    for (k, radius, _, ranking), numbers in groups.items():
        embeddings = [queries[number].embedding for number in numbers]
        batch = np.stack(
            [codes[number] for number in numbers]
            if ranking == "hamming"
            else [embedding for embedding in embeddings if embedding is not None]
        )
        where = queries[numbers[0]].where
        # One more, because a stored item finds itself.
        extra = any(queries[number].id is not None for number in numbers)
        if radius is None:
            k = DEFAULT_K if k is None else k
            nearest = index.search(batch, k + extra, where)
            rows = list(zip(nearest.ids, nearest.distances, strict=True))
        else:
            balls = index.within(batch, radius, where, None if k is None else k + extra)
            rows = [(ball.ids, ball.distances) for ball in balls]
        for number, (ids, distances) in zip(numbers, rows, strict=True):
            found[number] = other_pairs(ids, distances, without=queries[number].id)[:k]
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
    pairs = other_pairs(nearest.ids[0], nearest.distances[0], without=without)
    return int(pairs[0][0]) if pairs else None


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
    pairs: list[tuple[float, int]],
    present: dict[int, StoredItem],
) -> Result:
    items = tuple(present[i] for _, i in pairs)
    hits = tuple(
        Hit(
            rank,
            distance,
            differing_bits(code, item.code),
            i,
            item.metadata.path,
            item.metadata.labels,
        )
        for rank, ((distance, i), item) in enumerate(zip(pairs, items, strict=True), start=1)
    )
    item = None if query.id is None else stored[query.id]
    return Result(code, item, hits, items, query.ranking)


def given_code(query: Query) -> UInt8[np.ndarray, " bytes"]:
    if query.embedding is not None:
        return code_of(query.embedding)
    if query.code is None:
        raise InputError("got a query without embedding, code and id; give one of them")
    return query.code


def other_pairs(
    ids: Int64[np.ndarray, " n"], distances: Shaped[np.ndarray, " n"], *, without: int | None
) -> list[tuple[float, int]]:
    """Return pairs of distance and id, without the query itself and places left empty (-1)."""
    return [
        (distance, i)
        for distance, i in zip(distances.tolist(), ids.tolist(), strict=True)
        if distance >= 0 and i != without
    ]


def differing_bits(left: UInt8[np.ndarray, " bytes"], right: UInt8[np.ndarray, " bytes"]) -> int:
    return int(np.bitwise_count(left ^ right).sum())


def stored_items(index: SearchEngine, ids: Sequence[int]) -> dict[int, StoredItem]:
    """Return items by id; raise for an id that is not stored."""
    if not ids:
        return {}
    items = index.get(as_ids(ids))
    stored = map(StoredItem, ids, items.codes, items.metadata)
    return dict(zip(ids, stored, strict=True))


def still_stored(index: SearchEngine, ids: Sequence[int]) -> dict[int, StoredItem]:
    """Return items by id; those removed since they were found are left out."""
    try:
        return stored_items(index, ids)
    except UnknownIdError:
        # Bisect until the missing ids are alone.
        half = len(ids) // 2
        return still_stored(index, ids[:half]) | still_stored(index, ids[half:]) if half else {}
