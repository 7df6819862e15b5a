"""Queries to an index and their results, as bytes and metadata rather than JSON."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8

from orbithash.errors import DamagedIndexError, InputError
from orbithash.index import Index, Metadata, Where
from orbithash.retrieval.query import still_there
from orbithash.serve.error_responses import NotFoundError


@dataclass(frozen=True)
class SearchQuery:
    """A query by code, or by the id of a stored item; `labels` restricts the hits."""

    k: int
    radius: int | None = None
    labels: tuple[str, ...] = ()
    id: int | None = None
    code: bytes = b""


@dataclass(frozen=True)
class StoredItem:
    """An item of the index."""

    id: int
    code: bytes
    metadata: Metadata


@dataclass(frozen=True)
class SearchResult:
    """The query's code, its item in a search by id, and the hits with their distances."""

    code: bytes
    item: StoredItem | None
    hits: tuple[tuple[StoredItem, int], ...]


def find(index: Index, queries: Sequence[SearchQuery]) -> list[SearchResult]:
    """Search for all queries, nearest hits first; an item is never its own hit.

    Queries with equal `k` and `labels` share one search. Items that another process removes during
    the search are left out.
    """
    query_items = get_items(index, [query.id for query in queries if query.id is not None])
    codes = [query.code if query.id is None else query_items[query.id].code for query in queries]
    groups: dict[tuple[int, tuple[str, ...]], list[int]] = defaultdict(list)
    for position, query in enumerate(queries):
        groups[query.k, query.labels].append(position)
    nearest: dict[int, list[tuple[int, int]]] = {}  # (distance, id) by position of the query
    for (k, labels), positions in groups.items():
        has_ids = any(queries[position].id is not None for position in positions)
        found = index.search(
            code_array([codes[position] for position in positions]),
            k + has_ids,  # one more, because a stored item finds itself
            Where(labels=labels) if labels else None,
        )
        for position, distances, ids in zip(positions, found.distances, found.ids, strict=True):
            query = queries[position]
            nearest[position] = [
                (distance, i)
                for distance, i in zip(distances.tolist(), ids.tolist(), strict=True)
                if distance >= 0
                and i != query.id
                and (query.radius is None or distance <= query.radius)
            ][:k]
    hit_items = still_there(index, sorted({i for pairs in nearest.values() for _, i in pairs}))
    return [
        SearchResult(
            code,
            None if query.id is None else query_items[query.id],
            tuple(
                (StoredItem(i, *hit_items[i]), distance)
                for distance, i in nearest[position]
                if i in hit_items
            ),
        )
        for position, (query, code) in enumerate(zip(queries, codes, strict=True))
    ]


def get_items(index: Index, ids: Sequence[int]) -> dict[int, StoredItem]:
    """Return stored items by id; an unknown id is a `NotFoundError`."""
    if not ids:
        return {}
    try:
        items = index.get(np.array(ids, dtype=np.int64))
    except DamagedIndexError:
        raise
    except InputError as error:
        raise NotFoundError(str(error)) from None
    return {
        i: StoredItem(i, code.tobytes(), metadata)
        for i, code, metadata in zip(ids, items.codes, items.metadata, strict=True)
    }


def code_array(codes: Sequence[bytes]) -> UInt8[np.ndarray, "n bytes"]:
    return np.frombuffer(b"".join(codes), dtype=np.uint8).reshape(len(codes), -1)
