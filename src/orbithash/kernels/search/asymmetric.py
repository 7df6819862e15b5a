"""The exact k nearest codes by weighted Hamming distance; ties in database order.

A differing bit adds its weight instead of 1, and each query has its own weights. This is the
asymmetric distance of an embedding and a code, without the constant that all codes share.

Weights are rounded down to integers of 3 to 6 bits. The sum of such weights is a masked popcount
per bit, which is computed for 64 codes together, in vector registers. It is a lower bound of the
distance, and nearly all codes are rejected because it exceeds the distance of the k-th nearest code
so far. The distance of the others is computed exactly, from tables of the sums of four weights.
"""

import numpy as np
from jaxtyping import Int64, UInt64
from numba import njit, prange

from orbithash.kernels.search.nearest import merge_parts
from orbithash.kernels.search.wide_compare import (
    L1_WORDS,
    LANES,
    MAX_QUERIES_PER_TASK,
    clear_lowest_bit,
    lighter_lanes,
    lowest_bit,
)
from orbithash.kernels.threads import database_parts, parallel_njit, queries_per_task

FEW = 32  # neighbours; for more, rounding to one digit more is faster
FARTHEST = np.iinfo(np.int64).max  # distance of heap entries that hold no code yet


def nearest_weighted(
    queries: UInt64[np.ndarray, "words queries"],
    weights: Int64[np.ndarray, "queries bits"],
    database: UInt64[np.ndarray, "words database"],
    k: int,
) -> tuple[Int64[np.ndarray, "queries k"], Int64[np.ndarray, "queries k"]]:
    """Return distances and positions of the k nearest database codes, nearest first.

    Codes are in the layout of `as_words`; weights are from 0 to 2^40. Equal distances are in
    database order, also where they are cut at k. A database of fewer than k codes gives them all.

    >>> weights = np.array([[7, 3, 1, 1]])
    >>> query, database = np.zeros((1, 1), np.uint64), np.array([[128, 64]], np.uint64)
    >>> nearest_weighted(query, weights, database, k=2)
    (array([[3, 7]]), array([[1, 0]]))
    """
    n_queries, n = queries.shape[1], database.shape[1]
    k = min(k, n)
    if k == 0 or n_queries == 0:
        return np.empty((n_queries, k), dtype=np.int64), np.empty((n_queries, k), dtype=np.int64)
    task_queries = queries_per_task(n_queries, MAX_QUERIES_PER_TASK)
    n_parts = database_parts(-(-n_queries // task_queries), n)
    distances = np.full((n_queries, n_parts, k), FARTHEST, dtype=np.int64)
    positions = np.zeros((n_queries, n_parts, k), dtype=np.int64)
    n_digits = rounded_digits(weights.shape[1], k)
    rows = np.ascontiguousarray(queries.T)
    find_nearest_weighted(rows, weights, n_digits, database, task_queries, distances, positions)
    return merge_parts(distances, positions)


def weighted_distances(
    queries: UInt64[np.ndarray, "words queries"],
    weights: Int64[np.ndarray, "queries bits"],
    database: UInt64[np.ndarray, "words database"],
) -> Int64[np.ndarray, "queries database"]:
    """Return all distances of `nearest_weighted`.

    >>> query, database = np.zeros((1, 1), np.uint64), np.array([[128, 64]], np.uint64)
    >>> weighted_distances(query, np.array([[7, 3, 1, 1]]), database)
    array([[7, 3]])
    """
    distances = np.empty((queries.shape[1], database.shape[1]), dtype=np.int64)
    fill_weighted(np.ascontiguousarray(queries.T), weights, database, distances)
    return distances


def rounded_digits(n_bits: int, k: int) -> int:
    """Return how many binary digits the rounded weights have, as measured to be fastest.

    The error of a sum grows with the number of bits, but the spread of distances only with its
    square root.
    """
    return 3 + (n_bits > 64) + (n_bits > 256) + (k > FEW)


@parallel_njit
def find_nearest_weighted(  # type: ignore[no-untyped-def]
    queries, weights, n_digits, database, task_queries, distances, positions
):
    """Find the nearest in each part of the database; a task is some queries and one part.

    The results of a query and part are a heap, whose first entry is the farthest.
    """
    n_queries, n_parts, _ = distances.shape
    n_words, n = database.shape
    block = max(LANES, L1_WORDS // n_words // LANES * LANES)
    for task in prange((n_queries + task_queries - 1) // task_queries * n_parts):
        first, part = task // n_parts * task_queries, task % n_parts
        last = min(first + task_queries, n_queries)
        ordered = in_word_order(weights[first:last], n_words)
        masks, largest = rounded_weights(ordered, n_digits)
        batch = (queries[first:last], masks, largest, sums_of_four(ordered))
        end = n * (part + 1) // n_parts
        for start in range(n * part // n_parts, end, block):
            stop = min(start + block, end)
            for query in range(last - first):
                heap = (distances[first + query, part], positions[first + query, part])
                collect_weighted(batch, query, database, start, stop, heap)
        for query in range(first, last):
            sort_heap(distances[query, part], positions[query, part])


@parallel_njit
def fill_weighted(queries, weights, database, distances):  # type: ignore[no-untyped-def]
    n_queries, n = distances.shape
    sums = sums_of_four(in_word_order(weights, database.shape[0]))
    n_blocks = (n + L1_WORDS - 1) // L1_WORDS
    for task in prange(n_queries * n_blocks):
        query, start = task // n_blocks, task % n_blocks * L1_WORDS
        for position in range(start, min(start + L1_WORDS, n)):
            distances[query, position] = weighted_distance(queries, sums, query, database, position)


@njit(cache=True, nogil=True)
def in_word_order(weights, n_words):  # type: ignore[no-untyped-def]
    """Return weights in the order of the bits of words, the lowest bit first; padding weighs 0."""
    ordered = np.zeros((len(weights), 64 * n_words), dtype=np.int64)
    for query in range(len(weights)):
        for bit in range(weights.shape[1]):
            # The first bit of a byte is its highest; the first byte of a word is its lowest.
            ordered[query, bit ^ 7] = weights[query, bit]
    return ordered


@njit(cache=True, nogil=True)
def rounded_weights(weights, n_digits):  # type: ignore[no-untyped-def]
    """Return the weights as fractions of the largest, rounded down, and the largest.

    Each binary digit is a mask of the bits whose weight has it, in an array (queries, digits,
    words) with the highest digit first. The largest weight has all digits.
    """
    n_queries, n_bits = weights.shape
    masks = np.zeros((n_queries, n_digits, n_bits // 64), dtype=np.uint64)
    largest = np.ones(n_queries, dtype=np.int64)
    for query in range(n_queries):
        for bit in range(n_bits):
            largest[query] = max(largest[query], weights[query, bit])
        for bit in range(n_bits):
            rounded = weights[query, bit] * ((1 << n_digits) - 1) // largest[query]
            for digit in range(n_digits):
                is_set = np.uint64(rounded >> (n_digits - 1 - digit)) & np.uint64(1)
                masks[query, digit, bit // 64] |= is_set << np.uint64(bit % 64)
    return masks, largest


@njit(cache=True, nogil=True)
def collect_weighted(batch, query, database, start, stop, heap):  # type: ignore[no-untyped-def]
    """Put the codes `start` to `stop` that are nearer than the farthest of a heap into the heap."""
    queries, masks, largest, sums = batch
    distances, positions = heap
    levels = (1 << masks.shape[1]) - 1
    bound = rounded_limit(distances[0], levels, largest[query])
    while start < stop:
        if start + LANES <= stop:
            mask = lighter_lanes(queries, masks, query, database, start, bound)
        else:
            mask = (np.uint64(1) << np.uint64(stop - start)) - np.uint64(1)
        while mask != 0:
            position = start + lowest_bit(mask)
            mask = clear_lowest_bit(mask)
            distance = weighted_distance(queries, sums, query, database, position)
            # A later code at the same distance would rank behind k others.
            if distance < distances[0]:
                replace_farthest(distances, positions, distances.size, distance, position)
                bound = rounded_limit(distances[0], levels, largest[query])
        start += LANES


@njit(cache=True, nogil=True)
def rounded_limit(limit, levels, largest):  # type: ignore[no-untyped-def]
    """Return the smallest sum of rounded weights that proves a distance to be at the limit."""
    if limit == FARTHEST:
        return ~np.uint64(0)
    return np.uint64((limit * levels + largest - 1) // largest)


@njit(cache=True, nogil=True)
def weighted_distance(queries, sums, query, database, position):  # type: ignore[no-untyped-def]
    """Add the weights of the bits in which a code differs from a query, four bits at a time."""
    distance = np.int64(0)
    for word in range(database.shape[0]):
        different = database[word, position] ^ queries[query, word]
        for four in range(16):
            distance += sums[query, 16 * word + four, different & np.uint64(15)]
            different >>= np.uint64(4)
    return distance


@njit(cache=True, nogil=True)
def sums_of_four(weights):  # type: ignore[no-untyped-def]
    """Return the sums of weights of each four bits: one for each of the 16 values they can have."""
    n_queries, n_bits = weights.shape
    sums = np.zeros((n_queries, n_bits // 4, 16), dtype=np.int64)
    for query in range(n_queries):
        for four in range(n_bits // 4):
            for bit in range(4):
                for value in range(1 << bit, 2 << bit):
                    rest = sums[query, four, value - (1 << bit)]
                    sums[query, four, value] = rest + weights[query, 4 * four + bit]
    return sums


@njit(cache=True, nogil=True)
def replace_farthest(distances, positions, size, distance, position):  # type: ignore[no-untyped-def]
    """Replace the first entry of a heap; of equal distances the last position is the farthest."""
    parent, child = 0, 1
    while child < size:
        far, at = distances[child], positions[child]
        if child + 1 < size:
            other, other_at = distances[child + 1], positions[child + 1]
            if other > far or (other == far and other_at > at):
                child, far, at = child + 1, other, other_at
        if far < distance or (far == distance and at < position):
            break
        distances[parent], positions[parent] = far, at
        parent, child = child, 2 * child + 1
    distances[parent], positions[parent] = distance, position


@njit(cache=True, nogil=True)
def sort_heap(distances, positions):  # type: ignore[no-untyped-def]
    """Sort the entries of a heap, nearest first, by moving the farthest to the end repeatedly."""
    for end in range(distances.size - 1, 0, -1):
        distance, position = distances[end], positions[end]
        distances[end], positions[end] = distances[0], positions[0]
        replace_farthest(distances, positions, end, distance, position)
