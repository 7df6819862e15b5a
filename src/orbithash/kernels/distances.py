"""Squared Euclidean distances, compiled.

Differences are squared and summed, bit after bit, rather than expanded into |a|² + |b|² − 2ab:
equal embeddings then have distance exactly 0, and a pair's distance does not depend on where in
the batch it stands, so that rank lists do not either. No step is fused or reordered, so that plain
tensor operations can give the same to the last bit.
"""

import numpy as np
from numba import prange

from orbithash.kernels.threads import parallel, threads_for

BLOCK = 1024  # columns at a time: a block of the sums stays in the first cache


def squared_distances(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Float (n, bits) and (m, bits) to (n, m)."""
    with threads_for(len(rows) * len(columns)):
        # Bit by bit, so that the innermost loop runs along memory and vectorises.
        distances: np.ndarray = _by_bit(np.ascontiguousarray(rows), np.ascontiguousarray(columns.T))
        return distances


@parallel
def _by_bit(rows: np.ndarray, columns_by_bit: np.ndarray) -> np.ndarray:
    n_columns = columns_by_bit.shape[1]
    distances = np.zeros((len(rows), n_columns), rows.dtype)
    for row in prange(len(rows)):
        for start in range(0, n_columns, BLOCK):
            sums = distances[row, start : start + BLOCK]
            for bit in range(rows.shape[1]):
                here = rows[row, bit]
                there = columns_by_bit[bit, start : start + BLOCK]
                for column in range(len(sums)):
                    difference = here - there[column]
                    sums[column] += difference * difference
    return distances
