"""Codes within a Hamming radius: two passes, no sort, nearest first and ties in database order.

The first pass counts how many codes are at each distance, which says where each belongs in the
answer; the second puts them there.
"""

import numpy as np
from jaxtyping import Int64, UInt8, UInt64
from numba import prange

from orbithash.kernels.hamming import hamming_distances_reference
from orbithash.kernels.threads import database_parts, parallel, queries_per_task
from orbithash.kernels.wide_compare import (
    L1_WORDS,
    LANES,
    TOGETHER,
    distance_to,
    lowest,
    next_nearer,
    without_lowest,
)


def within_words(
    queries: UInt64[np.ndarray, "words queries"],
    database: UInt64[np.ndarray, "words database"],
    radius: int,
) -> list[tuple[Int64[np.ndarray, " found"], Int64[np.ndarray, " found"]]]:
    """Distances and positions of the codes at most `radius` bits from each query.

    Both arguments are laid out as by `as_words`.

    >>> database = np.array([[0b1100, 0b0111, 0b1000]], dtype=np.uint64)
    >>> within_words(np.array([[0b1000]], dtype=np.uint64), database, radius=1)
    [(array([0, 1]), array([2, 0]))]
    """
    n_queries, n = queries.shape[1], database.shape[1]
    radius = min(radius, 64 * len(database))
    together = queries_per_task(n_queries, TOGETHER)
    parts = database_parts(-(-n_queries // together), n)
    rows = np.ascontiguousarray(queries.T)
    # What a part has at a distance comes after what the parts before it have.
    counts = np.zeros((n_queries, radius + 1, parts), dtype=np.int64)
    nowhere = np.empty(0, dtype=np.int64)
    go_through(rows, database, together, counts, nowhere, nowhere)
    places = (np.cumsum(counts) - counts.ravel()).reshape(counts.shape)
    distances, positions = (np.empty(int(counts.sum()), dtype=np.int64) for _ in range(2))
    go_through(rows, database, together, places, distances, positions)
    found = counts.sum(axis=(1, 2))
    return [
        (distances[end - n : end], positions[end - n : end])
        for end, n in zip(np.cumsum(found), found, strict=True)
    ]


def within_reference(
    queries: UInt8[np.ndarray, "queries bytes"],
    database: UInt8[np.ndarray, "database bytes"],
    radius: int,
) -> list[tuple[Int64[np.ndarray, " found"], Int64[np.ndarray, " found"]]]:
    """The same of packed codes in plain numpy."""
    found = []
    for distances in hamming_distances_reference(queries, database).astype(np.int64):
        order = np.argsort(distances, kind="stable")
        positions = order[distances[order] <= radius]
        found.append((distances[positions], positions))
    return found


@parallel
def go_through(queries, database, together, places, distances, positions):  # type: ignore[no-untyped-def]
    """Move each place on by every code that belongs there, and write the codes, if anywhere."""
    n_queries, limit, parts = places.shape
    n_words, n = database.shape
    block = max(LANES, L1_WORDS // n_words)
    for task in prange((n_queries + together - 1) // together * parts):
        first, part = task // parts * together, task % parts
        end = n * (part + 1) // parts
        for block_start in range(n * part // parts, end, block):
            stop = min(block_start + block, end)
            for query in range(first, min(first + together, n_queries)):
                start = block_start
                while start < stop:
                    start, mask = next_nearer(queries, query, database, start, stop, limit)
                    while mask != 0:
                        position = start + lowest(mask)
                        mask = without_lowest(mask)
                        distance = distance_to(queries, query, database, position)
                        place = places[query, distance, part]
                        places[query, distance, part] += 1
                        if positions.size > 0:
                            distances[place] = distance
                            positions[place] = position
                    start += LANES
