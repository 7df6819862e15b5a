"""Codes within a Hamming radius: two passes, no sort, nearest first, ties in database order.

The first pass counts the codes at each distance, which gives the position of each in the result;
the second pass writes them there.
"""

import numpy as np
from jaxtyping import Int64, UInt64
from numba import prange

from orbithash.kernels.threads import database_parts, parallel_njit, queries_per_task
from orbithash.kernels.wide_compare import (
    L1_WORDS,
    LANES,
    MAX_QUERIES_PER_TASK,
    clear_lowest_bit,
    distance_to,
    lowest_bit,
    next_nearer,
)


def within_words(
    queries: UInt64[np.ndarray, "words queries"],
    database: UInt64[np.ndarray, "words database"],
    radius: int,
) -> list[tuple[Int64[np.ndarray, " found"], Int64[np.ndarray, " found"]]]:
    """Return distances and positions of the codes at most `radius` bits from each query.

    Both arguments have the layout of `as_words`.

    >>> database = np.array([[0b1100, 0b0111, 0b1000]], dtype=np.uint64)
    >>> within_words(np.array([[0b1000]], dtype=np.uint64), database, radius=1)
    [(array([0, 1]), array([2, 0]))]
    """
    n_queries, n = queries.shape[1], database.shape[1]
    radius = min(radius, 64 * len(database))
    task_queries = queries_per_task(n_queries, MAX_QUERIES_PER_TASK)
    n_parts = database_parts(-(-n_queries // task_queries), n)
    query_rows = np.ascontiguousarray(queries.T)
    # At each distance, the codes of a part follow those of the parts before it.
    counts = np.zeros((n_queries, radius + 1, n_parts), dtype=np.int64)
    empty = np.empty(0, dtype=np.int64)
    scan(query_rows, database, task_queries, counts, empty, empty)
    ranks = (np.cumsum(counts) - counts.ravel()).reshape(counts.shape)
    distances, positions = (np.empty(int(counts.sum()), dtype=np.int64) for _ in range(2))
    scan(query_rows, database, task_queries, ranks, distances, positions)
    found = counts.sum(axis=(1, 2))
    return [
        (distances[end - n : end], positions[end - n : end])
        for end, n in zip(np.cumsum(found), found, strict=True)
    ]


@parallel_njit
def scan(queries, database, task_queries, ranks, distances, positions):  # type: ignore[no-untyped-def]
    """Write each code within the radius at its rank, and increment that rank.

    With empty outputs nothing is written, and the increments count the codes.
    """
    n_queries, limit, n_parts = ranks.shape  # the limit is radius + 1
    n_words, n = database.shape
    block = max(LANES, L1_WORDS // n_words)
    for task in prange((n_queries + task_queries - 1) // task_queries * n_parts):
        first, part = task // n_parts * task_queries, task % n_parts
        end = n * (part + 1) // n_parts
        for block_start in range(n * part // n_parts, end, block):
            stop = min(block_start + block, end)
            for query in range(first, min(first + task_queries, n_queries)):
                start = block_start
                while start < stop:
                    start, mask = next_nearer(queries, query, database, start, stop, limit)
                    while mask != 0:
                        position = start + lowest_bit(mask)
                        mask = clear_lowest_bit(mask)
                        distance = distance_to(queries, query, database, position)
                        rank = ranks[query, distance, part]
                        ranks[query, distance, part] += 1
                        if positions.size > 0:
                            distances[rank] = distance
                            positions[rank] = position
                    start += LANES
