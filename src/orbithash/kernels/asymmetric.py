"""The exact k nearest codes by weighted Hamming distance; ties in database order.

A differing bit adds its weight instead of 1, and each query has its own weights. This is the
asymmetric distance of an embedding and a code, without the constant that all codes share.

Weights are rounded down to a few levels, numbers of three binary digits or a little more. The sum
of such weights is a masked popcount per digit, which is computed for 64 codes together, in vector
registers. It is a lower bound of the distance, and nearly all codes are rejected because it exceeds
the distance of the k-th nearest code so far. The distance of the others is computed exactly, from
tables of the sums of four weights.
"""

import numpy as np
from jaxtyping import Int64, UInt64
from numba import njit, prange

from orbithash.kernels.nearest import merge_parts
from orbithash.kernels.plain_search import as_words
from orbithash.kernels.threads import database_parts, parallel_njit, queries_per_task
from orbithash.kernels.wide_compare import (
    L1_WORDS,
    LANES,
    MAX_QUERIES_PER_TASK,
    clear_lowest_bit,
    lighter_lanes,
    lowest_bit,
)

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

    >>> database = as_words(np.array([[0b10000000], [0b01000000]], np.uint8))
    >>> query = as_words(np.array([[0]], np.uint8))
    >>> nearest_weighted(query, np.array([[7, 3, 1, 1]]), database, k=2)
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
    masks, largest = rounded_weights(weights, n_digits)
    rows = (np.ascontiguousarray(queries.T), in_word_order(weights), masks, largest)
    find_nearest_weighted(rows, 2**n_digits - 1, database, task_queries, distances, positions)
    return merge_parts(distances, positions)


def rounded_digits(n_bits: int, k: int) -> int:
    """Return how many binary digits the rounded weights have, as measured to be fastest.

    The error of a sum grows with the number of bits, but the spread of distances only with its
    square root.
    """
    return 3 + (n_bits > 64) + (n_bits > 256) + (k > FEW)


def rounded_weights(
    weights: Int64[np.ndarray, "queries bits"], n_digits: int
) -> tuple[UInt64[np.ndarray, "queries digits words"], Int64[np.ndarray, " queries"]]:
    """Return the weights as fractions of the largest, rounded down, and the largest.

    Each binary digit is a mask of the bits whose weight has it, in the layout of `as_words`; the
    highest digit is the first. The largest weight has all digits set.
    """
    largest = np.maximum(weights.max(axis=1), 1)
    rounded = weights * (2**n_digits - 1) // largest[:, None]
    digits = [(rounded >> digit) & 1 == 1 for digit in reversed(range(n_digits))]
    masks = [as_words(np.packbits(bits, axis=1)).T for bits in digits]
    return np.ascontiguousarray(np.stack(masks, axis=1)), largest


def in_word_order(
    weights: Int64[np.ndarray, "queries bits"],
) -> Int64[np.ndarray, "queries padded"]:
    """Return weights in the order of the bits of words, the lowest bit first; padding weighs 0."""
    padded = np.pad(weights, ((0, 0), (0, -weights.shape[1] % 64)))
    by_byte = padded.reshape(len(weights), -1, 8)[:, :, ::-1]  # packed with the highest bit first
    return np.ascontiguousarray(by_byte).reshape(padded.shape)


@parallel_njit
def find_nearest_weighted(rows, levels, database, task_queries, distances, positions):  # type: ignore[no-untyped-def]
    """Find the nearest in each part of the database; a task is some queries and one part.

    The results of a query and part are a heap, whose first entry is the farthest.
    """
    queries, weights, masks, largest = rows
    n_queries, n_parts, _ = distances.shape
    n_words, n = database.shape
    block = max(LANES, L1_WORDS // n_words // LANES * LANES)
    for task in prange((n_queries + task_queries - 1) // task_queries * n_parts):
        first, part = task // n_parts * task_queries, task % n_parts
        last = min(first + task_queries, n_queries)
        sums = sums_of_four(weights[first:last])
        batch = (queries[first:last], masks[first:last], sums)
        end = n * (part + 1) // n_parts
        for start in range(n * part // n_parts, end, block):
            stop = min(start + block, end)
            for query in range(last - first):
                heap = (distances[first + query, part], positions[first + query, part])
                scale = (levels, largest[first + query])
                collect_weighted(batch, query, scale, database, start, stop, heap)
        for query in range(first, last):
            sort_heap(distances[query, part], positions[query, part])


@njit(cache=True, nogil=True)
def collect_weighted(batch, query, scale, database, start, stop, heap):  # type: ignore[no-untyped-def]
    """Put the codes `start` to `stop` that are nearer than the farthest of a heap into the heap."""
    queries, masks, sums = batch
    distances, positions = heap
    bound = rounded_limit(distances[0], scale)
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
                bound = rounded_limit(distances[0], scale)
        start += LANES


@njit(cache=True, nogil=True)
def rounded_limit(limit, scale):  # type: ignore[no-untyped-def]
    """Return the sum of rounded weights from which on no distance is below the limit."""
    levels, largest = scale
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
