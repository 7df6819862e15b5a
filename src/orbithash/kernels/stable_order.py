"""Average precision of a stable sort by distance, by counting instead of sorting.

In database order, an item's rank is the number of items at smaller distances, plus those already
seen at its own, plus one. The number of relevant items up to that rank is counted alike.
"""

import numpy as np
from jaxtyping import Bool, Float64, Int64, UInt8, UInt64
from numba import prange

from orbithash.kernels.hamming import hamming_distances_reference
from orbithash.kernels.popcount import block_distances
from orbithash.kernels.threads import parallel, queries_per_task

BLOCK = 16384
TOGETHER = 8  # queries of one task, at most


def stable_precision_sums(
    queries: UInt64[np.ndarray, "words queries"],
    database: UInt64[np.ndarray, "words database"],
    group: Int64[np.ndarray, " database"],
    answers: Bool[np.ndarray, "queries groups"],
    items_before: Int64[np.ndarray, "queries distances"],
    relevant_before: Int64[np.ndarray, "queries distances"],
    cutoffs: Int64[np.ndarray, " cutoffs"],
) -> tuple[Float64[np.ndarray, "queries cutoffs"], Int64[np.ndarray, "queries cutoffs"]]:
    """Sum of precisions at the relevant ranks up to each cutoff, and the number of these.

    Codes come as `as_words` lays them out. Database item i answers a query if
    `answers[query, group[i]]`; `items_before` and `relevant_before` count what is nearer than
    each distance.
    """
    shape = (len(answers), len(cutoffs))
    sums, found = np.zeros(shape, dtype=np.float64), np.zeros(shape, dtype=np.int64)
    add_precisions(
        queries,
        database,
        group,
        answers,
        items_before.copy(),
        relevant_before.copy(),
        cutoffs,
        queries_per_task(len(answers), TOGETHER),
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
    """The same in plain numpy, by a stable sort, from packed codes and the relevance of pairs."""
    order = np.argsort(hamming_distances_reference(queries, database), axis=1, kind="stable")
    relevant = np.take_along_axis(related, order, axis=1)
    ranks = np.arange(1, len(database) + 1)
    precisions = np.where(relevant, relevant.cumsum(axis=1) / ranks, 0.0)
    within = ranks[:, None] <= cutoffs
    return precisions @ within, relevant.astype(np.int64) @ within


@parallel
def add_precisions(  # type: ignore[no-untyped-def]
    queries, database, group, answers, ranks, relevant_ranks, cutoffs, together, sums, found
):
    """`ranks` and `relevant_ranks` start as what is nearer and go up as items are seen."""
    n_queries, n = len(answers), database.shape[1]
    for task in prange((n_queries + together - 1) // together):
        distances = np.empty(BLOCK, dtype=np.uint16)
        for start in range(0, n, BLOCK):
            stop = min(start + BLOCK, n)
            for query in range(task * together, min((task + 1) * together, n_queries)):
                block_distances(queries, query, database, start, stop, distances)
                for i in range(stop - start):
                    distance = distances[i]
                    ranks[query, distance] += 1
                    if answers[query, group[start + i]]:
                        relevant_ranks[query, distance] += 1
                        rank = ranks[query, distance]
                        precision = relevant_ranks[query, distance] / rank
                        for c in range(cutoffs.size):
                            if rank <= cutoffs[c]:
                                sums[query, c] += precision
                                found[query, c] += 1
