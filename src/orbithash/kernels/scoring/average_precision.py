"""Average precision from rank lists: in one order of the ties, or as the mean over all orders.

In database order, the rank of an item is the number of items at smaller distances, plus the number
already seen at its own distance, plus one. The relevant items up to that rank are counted the same
way. Sorting, which is also the reference of the counting, is for other orders of the ties.

The mean over all orders is for distances that are not small integers, and so have no histogram.
Their lists are sorted, and most ties have one item.
"""

from typing import Literal

import numpy as np
from jaxtyping import Bool, Float64, Int64, UInt64
from numba import prange

from orbithash.kernels.hamming import block_distances
from orbithash.kernels.threads import parallel_njit, queries_per_task

BLOCK_CODES = 16384
MAX_QUERIES_PER_TASK = 8


def stable_precision_sums(
    queries: UInt64[np.ndarray, "words queries"],
    database: UInt64[np.ndarray, "words database"],
    group: Int64[np.ndarray, " database"],
    is_relevant: Bool[np.ndarray, "queries groups"],
    items_before: Int64[np.ndarray, "queries distances"],
    relevant_before: Int64[np.ndarray, "queries distances"],
    cutoffs: Int64[np.ndarray, "queries cutoffs"],
    left_out: Int64[np.ndarray, " queries"],
) -> tuple[Float64[np.ndarray, "queries cutoffs"], Int64[np.ndarray, "queries cutoffs"]]:
    """Return the sum of precisions at the relevant ranks up to each cutoff, and their number.

    Codes have the layout of `as_words`. Database item i is relevant to a query if
    `is_relevant[query, group[i]]`; `items_before` and `relevant_before` count the items below each
    distance. `left_out` is the position of an item that is not in the query's list, or -1.
    """
    sums, found = np.zeros(cutoffs.shape, np.float64), np.zeros(cutoffs.shape, np.int64)
    add_precisions(
        queries,
        database,
        group,
        is_relevant,
        items_before.copy(),
        relevant_before.copy(),
        cutoffs,
        left_out,
        queries_per_task(len(is_relevant), MAX_QUERIES_PER_TASK),
        sums,
        found,
    )
    return sums, found


def sorted_precision_sums(
    queries: UInt64[np.ndarray, "words queries"],
    database: UInt64[np.ndarray, "words database"],
    group: Int64[np.ndarray, " database"],
    is_relevant: Bool[np.ndarray, "queries groups"],
    cutoffs: Int64[np.ndarray, "queries cutoffs"],
    left_out: Int64[np.ndarray, " queries"],
    kind: Literal["stable"] | None = None,
) -> tuple[Float64[np.ndarray, "queries cutoffs"], Int64[np.ndarray, "queries cutoffs"]]:
    """Return the same of lists sorted by numpy, by default in an order that is not stable.

    Distances are float32, as in published code: numpy sorts each type in its own way.
    """
    sums, found = np.zeros(cutoffs.shape, np.float64), np.zeros(cutoffs.shape, np.int64)
    ranks = np.arange(1, database.shape[1] + 1)
    for query, relevance in enumerate(is_relevant):
        distances = np.zeros(database.shape[1], dtype=np.float32)
        for word, codes in zip(queries[:, query], database, strict=True):
            distances += np.bitwise_count(word ^ codes)
        relevant = relevance[group]
        if left_out[query] >= 0:
            distances = np.delete(distances, left_out[query])
            relevant = np.delete(relevant, left_out[query])
        relevant = relevant[np.argsort(distances, kind=kind)]
        precisions = relevant.cumsum()[relevant] / ranks[: len(relevant)][relevant]
        found[query] = np.append(0, relevant.cumsum())[np.minimum(cutoffs[query], len(relevant))]
        sums[query] = np.append(0, precisions.cumsum())[found[query]]
    return sums, found


def expected_precision_sums(
    keys: Int64[np.ndarray, "queries items"],
) -> Float64[np.ndarray, " queries"]:
    """Return the sum of the precisions at the relevant ranks, as the mean over orders of the ties.

    Each row is in ascending order. A key is 2 · distance, plus 1 if the item is relevant.

    >>> expected_precision_sums(np.array([[2, 3, 5]]))  # relevant first or second, and third
    array([1.41666667])
    """
    sums = np.zeros(len(keys), dtype=np.float64)
    add_expected_precisions(keys, sums)
    return sums


@parallel_njit
def add_precisions(  # type: ignore[no-untyped-def]
    queries,
    database,
    group,
    is_relevant,
    ranks,
    relevant_ranks,
    cutoffs,
    left_out,
    task_queries,
    sums,
    found,
):
    """`ranks` and `relevant_ranks` start as the counts before each distance, and count on."""
    n_queries, n = len(is_relevant), database.shape[1]
    for task in prange((n_queries + task_queries - 1) // task_queries):
        distances = np.empty(BLOCK_CODES, dtype=np.uint16)
        for start in range(0, n, BLOCK_CODES):
            stop = min(start + BLOCK_CODES, n)
            for query in range(task * task_queries, min((task + 1) * task_queries, n_queries)):
                block_distances(queries, query, database, start, stop, distances)
                for i in range(stop - start):
                    if start + i == left_out[query]:
                        continue
                    distance = distances[i]
                    ranks[query, distance] += 1
                    if is_relevant[query, group[start + i]]:
                        relevant_ranks[query, distance] += 1
                        rank = ranks[query, distance]
                        precision = relevant_ranks[query, distance] / rank
                        for c in range(cutoffs.shape[1]):
                            if rank <= cutoffs[query, c]:
                                sums[query, c] += precision
                                found[query, c] += 1


@parallel_njit
def add_expected_precisions(
    keys: Int64[np.ndarray, "n m"], sums: Float64[np.ndarray, " n"]
) -> None:
    n_queries, n = keys.shape
    for query in prange(n_queries):
        row = keys[query]
        start, relevant_before, total = 0, 0, 0.0
        while start < n:
            stop, relevant = start, 0
            while stop < n and row[stop] >> 1 == row[start] >> 1:
                relevant += row[stop] & 1
                stop += 1
            n_tied = stop - start
            chance = relevant / n_tied  # that an item at a given rank of the tie is relevant
            # That another item of the tie is relevant, given one that is.
            other_chance = (relevant - 1) / max(n_tied - 1, 1)
            for rank in range(n_tied if relevant else 0):
                total += chance * (relevant_before + 1 + rank * other_chance) / (start + rank + 1)
            start, relevant_before = stop, relevant_before + relevant
        sums[query] = total
