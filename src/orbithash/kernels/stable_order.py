"""Average precision of a stable sort by distance, by counting instead of sorting.

In database order, the rank of an item is the number of items at smaller distances, plus the number
already seen at its own distance, plus one. The relevant items up to that rank are counted the same
way.
"""

import numpy as np
from jaxtyping import Bool, Float64, Int64, UInt8, UInt64
from numba import prange

from orbithash.kernels.hamming import block_distances
from orbithash.kernels.plain_search import hamming_distances_reference
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
    cutoffs: Int64[np.ndarray, " cutoffs"],
) -> tuple[Float64[np.ndarray, "queries cutoffs"], Int64[np.ndarray, "queries cutoffs"]]:
    """Return the sum of precisions at the relevant ranks up to each cutoff, and their number.

    Codes have the layout of `as_words`. Database item i is relevant to a query if
    `is_relevant[query, group[i]]`; `items_before` and `relevant_before` count the items below each
    distance.
    """
    shape = (len(is_relevant), len(cutoffs))
    sums, found = np.zeros(shape, dtype=np.float64), np.zeros(shape, dtype=np.int64)
    add_precisions(
        queries,
        database,
        group,
        is_relevant,
        items_before.copy(),
        relevant_before.copy(),
        cutoffs,
        queries_per_task(len(is_relevant), MAX_QUERIES_PER_TASK),
        sums,
        found,
    )
    return sums, found


def stable_precision_sums_reference(
    queries: UInt8[np.ndarray, "queries bytes"],
    database: UInt8[np.ndarray, "database bytes"],
    related: Bool[np.ndarray, "queries database"],
    cutoffs: Int64[np.ndarray, " cutoffs"],
) -> tuple[Float64[np.ndarray, "queries cutoffs"], Int64[np.ndarray, "queries cutoffs"]]:
    """Compute the same in plain numpy, by a stable sort, from packed codes and related pairs."""
    order = np.argsort(hamming_distances_reference(queries, database), axis=1, kind="stable")
    relevant = np.take_along_axis(related, order, axis=1)
    ranks = np.arange(1, len(database) + 1)
    precisions = np.where(relevant, relevant.cumsum(axis=1) / ranks, 0.0)
    within = ranks[:, None] <= cutoffs
    return precisions @ within, relevant.astype(np.int64) @ within


@parallel_njit
def add_precisions(  # type: ignore[no-untyped-def]
    queries, database, group, is_relevant, ranks, relevant_ranks, cutoffs, task_queries, sums, found
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
                    distance = distances[i]
                    ranks[query, distance] += 1
                    if is_relevant[query, group[start + i]]:
                        relevant_ranks[query, distance] += 1
                        rank = ranks[query, distance]
                        precision = relevant_ranks[query, distance] / rank
                        for c in range(cutoffs.size):
                            if rank <= cutoffs[c]:
                                sums[query, c] += precision
                                found[query, c] += 1
