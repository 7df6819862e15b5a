"""Expected precision along sorted lists: one pass, with ties of any size.

Distances that are not small integers have no histogram. Their lists are sorted, and most ties have
one item.
"""

import numpy as np
from jaxtyping import Float64, Int64
from numba import prange

from orbithash.kernels.threads import parallel_njit


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
