"""Hamming distances between all pairs of packed codes."""

import numpy as np
from jaxtyping import UInt8, UInt16, UInt64
from numba import prange

from orbithash.kernels.popcount import (
    as_words,
    block_distances,
    check_same_length,
)
from orbithash.kernels.threads import parallel, queries_per_task

BLOCK = 16384  # images per pass; 128 kB of each word, so a block stays in the cache of its core
TOGETHER = 16  # queries that share a pass over the database, at most


def hamming_distances(
    left: UInt8[np.ndarray, "n bytes"], right: UInt8[np.ndarray, "m bytes"]
) -> UInt16[np.ndarray, "n m"]:
    """Number of bits in which each pair of codes differs.

    >>> hamming_distances(np.array([[0b1100]], np.uint8), np.array([[0b1010], [0]], np.uint8))
    array([[2, 2]], dtype=uint16)
    """
    check_same_length(left, right)
    distances = np.empty((len(left), len(right)), dtype=np.uint16)
    together = queries_per_task(len(left), TOGETHER)
    fill_distances(as_words(left), as_words(right), together, distances)
    return distances


def hamming_distances_reference(
    left: UInt8[np.ndarray, "n bytes"], right: UInt8[np.ndarray, "m bytes"]
) -> UInt16[np.ndarray, "n m"]:
    """The same in plain numpy, with memory for every byte of every pair."""
    different = np.bitwise_count(left[:, None, :] ^ right[None, :, :])
    return np.asarray(different.sum(axis=2, dtype=np.uint16))


@parallel
def fill_distances(
    queries: UInt64[np.ndarray, "words n"],
    database: UInt64[np.ndarray, "words m"],
    together: int,
    distances: UInt16[np.ndarray, "n m"],
) -> None:
    n, m = distances.shape
    for task in prange((n + together - 1) // together):
        for start in range(0, m, BLOCK):
            stop = min(start + BLOCK, m)
            for query in range(task * together, min((task + 1) * together, n)):
                block_distances(queries, query, database, start, stop, distances[query, start:stop])
