"""Squared Euclidean distances of embeddings, compiled.

Squared differences are summed dimension by dimension, rather than expanded into
|a|² + |b|² − 2ab. Equal embeddings then have distance exactly 0, and the distance of a pair does
not depend on its position in the batch, so neither does the order of a rank list. No operation is
fused or reordered, so that the tensor operations in `losses/batch/pairs.py`, for other devices,
give bitwise identical results.
"""

import numpy as np
from numba import prange

from orbithash.kernels.threads import parallel_njit, threads_for

BLOCK_COLUMNS = 1024  # sums of one block fit in the L1 cache


def squared_distances(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the squared distances (n, m) of all pairs of (n, bits) and (m, bits) embeddings."""
    with threads_for(len(left) * len(right)):
        # Transposed, so that the innermost loop reads contiguous memory and vectorises.
        distances: np.ndarray = _sum_squares(
            np.ascontiguousarray(left), np.ascontiguousarray(right.T)
        )
        return distances


@parallel_njit
def _sum_squares(left: np.ndarray, right_transposed: np.ndarray) -> np.ndarray:
    n_columns = right_transposed.shape[1]
    distances = np.zeros((len(left), n_columns), left.dtype)
    for row in prange(len(left)):
        for start in range(0, n_columns, BLOCK_COLUMNS):
            sums = distances[row, start : start + BLOCK_COLUMNS]
            for dimension in range(left.shape[1]):
                value = left[row, dimension]
                block = right_transposed[dimension, start : start + BLOCK_COLUMNS]
                for column in range(len(sums)):
                    difference = value - block[column]
                    sums[column] += difference * difference
    return distances
