"""Exact k nearest codes: one pass, no heap, ties in database order.

A query keeps a limit, the distance of the k-th nearest item so far: only nearer ones can still
get in. It sinks quickly, so nearly all of the database is dismissed, 64 codes with one comparison.
"""

import numpy as np
from jaxtyping import Int32, Int64, UInt8, UInt64
from numba import njit, prange

from orbithash.kernels.hamming import hamming_distances_reference
from orbithash.kernels.popcount import as_words, check_same_length
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

CANDIDATES = 1 << 21  # that a task's queries have room for, so that a large k takes fewer at once
NOWHERE = np.iinfo(np.int32).max  # the distance of what a part of the database does not have


def nearest(
    queries: UInt8[np.ndarray, "queries bytes"],
    database: UInt8[np.ndarray, "database bytes"],
    k: int,
) -> tuple[Int32[np.ndarray, "queries k"], Int64[np.ndarray, "queries k"]]:
    """Distances and positions of the k nearest database codes, nearest first.

    Equal distances are in the order of the database, also where they are cut at k. A database
    of fewer than k codes gives them all.

    >>> nearest(np.array([[0b1100]], np.uint8), np.array([[0], [0b1100], [0b1010]], np.uint8), k=2)
    (array([[0, 2]], dtype=int32), array([[1, 0]]))
    """
    check_same_length(queries, database)
    return nearest_words(as_words(queries), as_words(database), k)


def nearest_words(
    queries: UInt64[np.ndarray, "words queries"],
    database: UInt64[np.ndarray, "words database"],
    k: int,
) -> tuple[Int32[np.ndarray, "queries k"], Int64[np.ndarray, "queries k"]]:
    """`nearest` for codes that are kept as `as_words` lays them out."""
    n_queries, n = queries.shape[1], database.shape[1]
    k = min(k, n)
    if k == 0 or n_queries == 0:
        return np.empty((n_queries, k), dtype=np.int32), np.empty((n_queries, k), dtype=np.int64)
    # At most 2k candidates outlive a cleaning, so 2k more must come before the next.
    capacity = min(4 * k, n) + LANES
    together = queries_per_task(n_queries, max(1, min(TOGETHER, CANDIDATES // capacity)))
    parts = database_parts(-(-n_queries // together), n)
    distances = np.full((n_queries, parts, k), NOWHERE, dtype=np.int32)
    positions = np.empty((n_queries, parts, k), dtype=np.int64)
    rows = np.ascontiguousarray(queries.T)
    find_nearest(rows, database, capacity, together, distances, positions)
    return merged(distances, positions)


def merged(
    distances: Int32[np.ndarray, "queries parts k"], positions: Int64[np.ndarray, "queries parts k"]
) -> tuple[Int32[np.ndarray, "queries k"], Int64[np.ndarray, "queries k"]]:
    """The nearest of all parts, which are in database order."""
    n_queries, parts, k = distances.shape
    if parts == 1:
        return distances[:, 0], positions[:, 0]
    distances, positions = distances.reshape(n_queries, -1), positions.reshape(n_queries, -1)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, order, axis=1), np.take_along_axis(
        positions, order, axis=1
    )


def nearest_reference(
    queries: UInt8[np.ndarray, "queries bytes"],
    database: UInt8[np.ndarray, "database bytes"],
    k: int,
) -> tuple[Int32[np.ndarray, "queries k"], Int64[np.ndarray, "queries k"]]:
    """The same in plain numpy: a stable sort of all distances."""
    distances = hamming_distances_reference(queries, database).astype(np.int32)
    positions = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, positions, axis=1), positions


@parallel
def find_nearest(queries, database, capacity, together, distances, positions):  # type: ignore[no-untyped-def]
    """The nearest in each part of the database, by tasks of some queries and one part."""
    n_queries, parts, k = distances.shape
    n_words, n = database.shape
    beyond, block = 64 * n_words + 1, max(LANES, L1_WORDS // n_words)
    for task in prange((n_queries + together - 1) // together * parts):
        first, part = task // parts * together, task % parts
        asked = queries[first : min(first + together, n_queries)]
        near_distances = np.empty((len(asked), capacity), dtype=np.uint16)
        near_positions = np.empty((len(asked), capacity), dtype=np.int64)
        counts = np.zeros((len(asked), beyond + 1), dtype=np.int64)  # candidates by distance
        progress = np.zeros((len(asked), 3), dtype=np.int64)
        progress[:, 1] = beyond
        state = (near_distances, near_positions, counts, progress)
        end = n * (part + 1) // parts
        for start in range(n * part // parts, end, block):
            stop = min(start + block, end)
            for query in range(len(asked)):
                collect(asked, query, database, start, stop, k, state)
        for query in range(len(asked)):
            write_sorted(
                near_distances[query, : progress[query, 0]],
                near_positions[query],
                counts[query],
                distances[first + query, part],
                positions[first + query, part],
            )


@njit(cache=True, nogil=True)
def collect(queries, query, database, start, stop, k, state):  # type: ignore[no-untyped-def]
    """Add the codes `start` to `stop` to a query's candidates, as far as they can be among the k.

    `progress` holds how many candidates there are, the limit, and how many are up to the limit.
    """
    near_distances, near_positions, counts, progress = state
    kept, limit, within = progress[query, 0], progress[query, 1], progress[query, 2]
    while start < stop:
        start, mask = next_nearer(queries, query, database, start, stop, limit)
        if kept + LANES > near_distances.shape[1]:
            kept = clean(near_distances[query], near_positions[query], kept, limit)
        while mask != 0:
            position = start + lowest(mask)
            mask = without_lowest(mask)
            distance = distance_to(queries, query, database, position)
            # The limit may have sunk since. A later item at the limit would come after k others.
            if distance < limit:
                near_distances[query, kept] = distance
                near_positions[query, kept] = position
                kept += 1
                counts[query, distance] += 1
                within += 1
                while within - counts[query, limit] >= k:
                    within -= counts[query, limit]
                    limit -= 1
        start += LANES
    progress[query, 0], progress[query, 1], progress[query, 2] = kept, limit, within


@njit(cache=True, nogil=True)
def clean(near_distances, near_positions, kept, limit):  # type: ignore[no-untyped-def]
    """Move the candidates up to the limit to the front, and return how many they are.

    Fewer than k are below the limit, and when the limit came down to where it is, exactly k
    were below or at it: so fewer than 2k stay.
    """
    staying = 0
    for i in range(kept):
        if near_distances[i] <= limit:
            near_distances[staying] = near_distances[i]
            near_positions[staying] = near_positions[i]
            staying += 1
    return staying


@njit(cache=True, nogil=True)
def write_sorted(near_distances, near_positions, counts, distances, positions):  # type: ignore[no-untyped-def]
    """The first k candidates by distance, then by database order, in which they already are."""
    # Candidates that were cleaned away are counted too, but only behind the first k.
    places = np.cumsum(counts) - counts
    for i in range(near_distances.size):
        distance = near_distances[i]
        place = places[distance]
        places[distance] += 1
        if place < distances.size:
            distances[place] = distance
            positions[place] = near_positions[i]
