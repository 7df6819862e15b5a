"""Codes within a Hamming radius: two passes, no sort, nearest first and ties in database order.

The first pass counts how many codes are at each distance, which says where each belongs in the
answer; the second puts them there.
"""

import numpy as np
from jaxtyping import Int64, UInt8, UInt64
from numba import njit, prange

from orbithash.kernels.hamming import hamming_distances_reference
from orbithash.kernels.popcount import block_distances

BLOCK = 4096  # images whose distances are computed together, while they are in the cache


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
    radius = min(radius, 64 * len(database))
    counts = np.zeros((queries.shape[1], radius + 1), dtype=np.int64)
    count_within(queries, database, counts)
    found = int(counts.sum())
    distances, positions = np.empty(found, dtype=np.int64), np.empty(found, dtype=np.int64)
    # Where the codes at each distance of each query begin, in one answer for all queries.
    places = (np.cumsum(counts) - counts.ravel()).reshape(counts.shape)
    fill_within(queries, database, places, distances, positions)
    ends = np.cumsum(counts.sum(axis=1))
    return [
        (distances[end - n : end], positions[end - n : end])
        for end, n in zip(ends, counts.sum(axis=1), strict=True)
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


@njit(cache=True, parallel=True, nogil=True)
def count_within(queries, database, counts):  # type: ignore[no-untyped-def]
    n = database.shape[1]
    for query in prange(counts.shape[0]):
        block = np.empty(BLOCK, dtype=np.uint16)
        for start in range(0, n, BLOCK):
            stop = min(start + BLOCK, n)
            block_distances(queries, query, database, start, stop, block)
            for i in range(stop - start):
                if block[i] < counts.shape[1]:
                    counts[query, block[i]] += 1


@njit(cache=True, parallel=True, nogil=True)
def fill_within(queries, database, places, distances, positions):  # type: ignore[no-untyped-def]
    n = database.shape[1]
    for query in prange(places.shape[0]):
        block = np.empty(BLOCK, dtype=np.uint16)
        for start in range(0, n, BLOCK):
            stop = min(start + BLOCK, n)
            block_distances(queries, query, database, start, stop, block)
            for i in range(stop - start):
                distance = block[i]
                if distance < places.shape[1]:
                    place = places[query, distance]
                    places[query, distance] += 1
                    distances[place] = distance
                    positions[place] = start + i
