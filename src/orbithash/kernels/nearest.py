"""Exact k nearest codes: one pass, no heap, ties in database order.

A query keeps a limit, the distance of the k-th nearest item so far: only nearer ones can still
get in. It sinks quickly, so nearly all of the database is dismissed in parts, by their smallest
distance alone.
"""

import numpy as np
from jaxtyping import Int32, Int64, UInt8, UInt64
from numba import njit, prange

from orbithash.kernels.hamming import hamming_distances_reference
from orbithash.kernels.popcount import (
    as_words,
    block_distances,
    check_same_length,
    queries_per_task,
)

BLOCK = 16384  # images that a task's queries go through in turn, while they are in the cache
PART = 256  # distances that are dismissed together
TOGETHER = 16  # queries of one task, at most
CANDIDATES = 1 << 21  # that a task's queries have room for, so that a large k takes fewer at once


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
    shape = (queries.shape[1], min(k, database.shape[1]))
    distances, positions = np.empty(shape, dtype=np.int32), np.empty(shape, dtype=np.int64)
    if shape[1] > 0:
        # At most 2k candidates outlive a cleaning, so 2k more must come before the next.
        capacity = min(4 * k, database.shape[1]) + PART
        together = queries_per_task(len(distances), min(TOGETHER, CANDIDATES // capacity))
        find_nearest(queries, database, capacity, together, distances, positions)
    return distances, positions


def nearest_reference(
    queries: UInt8[np.ndarray, "queries bytes"],
    database: UInt8[np.ndarray, "database bytes"],
    k: int,
) -> tuple[Int32[np.ndarray, "queries k"], Int64[np.ndarray, "queries k"]]:
    """The same in plain numpy: a stable sort of all distances."""
    distances = hamming_distances_reference(queries, database).astype(np.int32)
    positions = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, positions, axis=1), positions


@njit(cache=True, parallel=True, nogil=True)
def find_nearest(queries, database, capacity, together, distances, positions):  # type: ignore[no-untyped-def]
    n_queries, k = distances.shape
    n, beyond = database.shape[1], 64 * database.shape[0] + 1
    for task in prange((n_queries + together - 1) // together):
        first, last = task * together, min((task + 1) * together, n_queries)
        part_distances = np.empty(PART, dtype=np.uint16)
        near_distances = np.empty((last - first, capacity), dtype=np.uint16)
        near_positions = np.empty((last - first, capacity), dtype=np.int64)
        counts = np.zeros((last - first, beyond + 1), dtype=np.int64)  # candidates by distance
        kept = np.zeros(last - first, dtype=np.int64)
        limits = np.full(last - first, beyond, dtype=np.int64)
        within_limits = np.zeros(last - first, dtype=np.int64)  # candidates up to the limit
        for start in range(0, n, BLOCK):
            stop = min(start + BLOCK, n)
            for query in range(last - first):
                limit, within, count = limits[query], within_limits[query], counts[query]
                for part in range(start, stop, PART):
                    end = min(part + PART, stop)
                    block_distances(queries, first + query, database, part, end, part_distances)
                    if smallest(part_distances[: end - part]) >= limit:
                        continue
                    if kept[query] + PART > capacity:
                        kept[query] = clean(
                            near_distances[query], near_positions[query], kept[query], limit
                        )
                    for i in range(end - part):
                        distance = part_distances[i]
                        # A later item at the limit itself would come after k others.
                        if distance < limit:
                            near_distances[query, kept[query]] = distance
                            near_positions[query, kept[query]] = part + i
                            kept[query] += 1
                            count[distance] += 1
                            within += 1
                            while within - count[limit] >= k:
                                within -= count[limit]
                                limit -= 1
                limits[query], within_limits[query] = limit, within
        for query in range(last - first):
            write_sorted(
                near_distances[query, : kept[query]],
                near_positions[query],
                counts[query],
                distances[first + query],
                positions[first + query],
            )


@njit(cache=True, nogil=True)
def smallest(distances):  # type: ignore[no-untyped-def]
    least = distances[0]
    for i in range(distances.size):
        least = min(least, distances[i])
    return least


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
