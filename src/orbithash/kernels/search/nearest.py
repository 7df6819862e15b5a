"""The exact k nearest codes, and all codes within a Hamming radius; ties in database order.

The k nearest take one pass and no heap. Each query keeps a limit, the distance of its k-th nearest
candidate so far: only nearer codes can still enter. The limit falls quickly, so nearly all of the
database is rejected, 64 codes with one comparison; for a single query, often by the first of
several words alone, whose distance is a lower bound.

The codes within a radius take two passes and no sort. The first counts the codes at each distance,
which gives the position of each in the result; the second writes them there.
"""

import numpy as np
from jaxtyping import Int, Int32, Int64, UInt8, UInt64
from numba import njit, prange

from orbithash.kernels.hamming import check_same_length
from orbithash.kernels.plain_search import as_words
from orbithash.kernels.search.wide_compare import (
    L1_WORDS,
    LANES,
    MAX_QUERIES_PER_TASK,
    clear_lowest_bit,
    distance_to,
    lowest_bit,
    next_nearer,
)
from orbithash.kernels.threads import database_parts, parallel_njit, queries_per_task

MAX_TASK_CANDIDATES = 1 << 21  # of all queries of a task: a large k takes fewer queries at once
NOT_FOUND = np.iinfo(np.int32).max  # distance where a part of the database has fewer than k codes


def nearest_codes(
    queries: UInt8[np.ndarray, "queries bytes"],
    database: UInt8[np.ndarray, "database bytes"],
    k: int,
) -> tuple[Int32[np.ndarray, "queries k"], Int64[np.ndarray, "queries k"]]:
    """Return distances and positions of the k nearest database codes, nearest first.

    Equal distances are in database order, also where they are cut at k. A database of fewer
    than k codes gives them all.

    >>> database = np.array([[0], [0b1100], [0b1010]], np.uint8)
    >>> nearest_codes(np.array([[0b1100]], np.uint8), database, k=2)
    (array([[0, 2]], dtype=int32), array([[1, 0]]))
    """
    check_same_length(queries, database)
    return nearest_words(as_words(queries), as_words(database), k)


def nearest_words(
    queries: UInt64[np.ndarray, "words queries"],
    database: UInt64[np.ndarray, "words database"],
    k: int,
) -> tuple[Int32[np.ndarray, "queries k"], Int64[np.ndarray, "queries k"]]:
    """Return `nearest_codes` of codes in the layout of `as_words`."""
    n_queries, n = queries.shape[1], database.shape[1]
    k = min(k, n)
    if k == 0 or n_queries == 0:
        return np.empty((n_queries, k), dtype=np.int32), np.empty((n_queries, k), dtype=np.int64)
    # Fewer than 2k candidates survive `compact`, so at least 2k more arrive before the next one.
    capacity = min(4 * k, n) + LANES
    max_queries = max(1, min(MAX_QUERIES_PER_TASK, MAX_TASK_CANDIDATES // capacity))
    task_queries = queries_per_task(n_queries, max_queries)
    n_parts = database_parts(-(-n_queries // task_queries), n)
    distances = np.full((n_queries, n_parts, k), NOT_FOUND, dtype=np.int32)
    positions = np.empty((n_queries, n_parts, k), dtype=np.int64)
    query_rows = np.ascontiguousarray(queries.T)
    find_nearest(query_rows, database, capacity, task_queries, distances, positions)
    return merge_parts(distances, positions)


def within_words(
    queries: UInt64[np.ndarray, "words queries"],
    database: UInt64[np.ndarray, "words database"],
    radius: int,
) -> list[tuple[Int64[np.ndarray, " found"], Int64[np.ndarray, " found"]]]:
    """Return distances and positions of the codes at most `radius` bits from each query.

    They are sorted, nearest first. Both arguments have the layout of `as_words`.

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
    scan_within(query_rows, database, task_queries, counts, empty, empty)
    ranks = (np.cumsum(counts) - counts.ravel()).reshape(counts.shape)
    distances, positions = (np.empty(int(counts.sum()), dtype=np.int64) for _ in range(2))
    scan_within(query_rows, database, task_queries, ranks, distances, positions)
    found = counts.sum(axis=(1, 2))
    return [
        (distances[end - n : end], positions[end - n : end])
        for end, n in zip(np.cumsum(found), found, strict=True)
    ]


def merge_parts(
    distances: Int[np.ndarray, "queries parts k"], positions: Int64[np.ndarray, "queries parts k"]
) -> tuple[Int[np.ndarray, "queries k"], Int64[np.ndarray, "queries k"]]:
    """Return the nearest of all parts of the database, which are in database order."""
    n_queries, n_parts, k = distances.shape
    if n_parts == 1:
        return distances[:, 0], positions[:, 0]
    distances, positions = distances.reshape(n_queries, -1), positions.reshape(n_queries, -1)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, order, axis=1), np.take_along_axis(
        positions, order, axis=1
    )


@parallel_njit
def find_nearest(queries, database, capacity, task_queries, distances, positions):  # type: ignore[no-untyped-def]
    """Find the nearest in each part of the database; a task is some queries and one part."""
    n_queries, n_parts, k = distances.shape
    n_words, n = database.shape
    no_limit, block = 64 * n_words + 1, max(LANES, L1_WORDS // n_words)
    for task in prange((n_queries + task_queries - 1) // task_queries * n_parts):
        first, part = task // n_parts * task_queries, task % n_parts
        batch = queries[first : min(first + task_queries, n_queries)]
        near_distances = np.empty((len(batch), capacity), dtype=np.uint16)
        near_positions = np.empty((len(batch), capacity), dtype=np.int64)
        counts = np.zeros((len(batch), no_limit + 1), dtype=np.int64)  # candidates by distance
        progress = np.zeros((len(batch), 3), dtype=np.int64)
        progress[:, 1] = no_limit
        state = (near_distances, near_positions, counts, progress)
        end = n * (part + 1) // n_parts
        for start in range(n * part // n_parts, end, block):
            stop = min(start + block, end)
            for query in range(len(batch)):
                collect(batch, query, database, start, stop, k, state)
        for query in range(len(batch)):
            write_sorted(
                near_distances[query, : progress[query, 0]],
                near_positions[query],
                counts[query],
                distances[first + query, part],
                positions[first + query, part],
            )


@njit(cache=True, nogil=True)
def collect(queries, query, database, start, stop, k, state):  # type: ignore[no-untyped-def]
    """Add the codes `start` to `stop` that may be among the k nearest to a query's candidates.

    `progress` holds the number of candidates, the limit, and the number of codes counted at or
    below the limit.
    """
    near_distances, near_positions, counts, progress = state
    n_near, limit, n_within = progress[query, 0], progress[query, 1], progress[query, 2]
    while start < stop:
        start, mask = next_nearer(queries, query, database, start, stop, limit)
        if n_near + LANES > near_distances.shape[1]:
            n_near = compact(near_distances[query], near_positions[query], n_near, limit)
        while mask != 0:
            position = start + lowest_bit(mask)
            mask = clear_lowest_bit(mask)
            distance = distance_to(queries, query, database, position)
            # The limit may have fallen since. A later code at the limit would rank behind k others.
            if distance < limit:
                near_distances[query, n_near] = distance
                near_positions[query, n_near] = position
                n_near += 1
                counts[query, distance] += 1
                n_within += 1
                while n_within - counts[query, limit] >= k:
                    n_within -= counts[query, limit]
                    limit -= 1
        start += LANES
    progress[query, 0], progress[query, 1], progress[query, 2] = n_near, limit, n_within


@njit(cache=True, nogil=True)
def compact(near_distances, near_positions, n_near, limit):  # type: ignore[no-untyped-def]
    """Move the candidates up to the limit to the front, and return their number.

    Fewer than k are below the limit, and when the limit fell to its value, exactly k were below or
    at it: fewer than 2k remain.
    """
    n_kept = 0
    for i in range(n_near):
        if near_distances[i] <= limit:
            near_distances[n_kept] = near_distances[i]
            near_positions[n_kept] = near_positions[i]
            n_kept += 1
    return n_kept


@njit(cache=True, nogil=True)
def write_sorted(near_distances, near_positions, counts, distances, positions):  # type: ignore[no-untyped-def]
    """Write the first k candidates by distance; within a distance they are in database order."""
    # Candidates that `compact` dropped are counted too, but they rank behind the first k.
    next_rank = np.cumsum(counts) - counts  # by distance
    for i in range(near_distances.size):
        distance = near_distances[i]
        rank = next_rank[distance]
        next_rank[distance] += 1
        if rank < distances.size:
            distances[rank] = distance
            positions[rank] = near_positions[i]


@parallel_njit
def scan_within(queries, database, task_queries, ranks, distances, positions):  # type: ignore[no-untyped-def]
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
