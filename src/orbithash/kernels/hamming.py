"""Hamming distances of packed codes."""

from typing import Any

import numpy as np
from jaxtyping import UInt8, UInt16, UInt64
from numba import njit, prange, types
from numba.extending import intrinsic

from orbithash.errors import InputError
from orbithash.kernels.plain_search import as_words
from orbithash.kernels.threads import parallel_njit, queries_per_task

BLOCK_CODES = 16384  # per pass; 128 kB of each word, which fits the cache of a core
MAX_QUERIES_PER_TASK = 16  # queries that share a pass over the database


def hamming_distances(
    left: UInt8[np.ndarray, "n bytes"], right: UInt8[np.ndarray, "m bytes"]
) -> UInt16[np.ndarray, "n m"]:
    """Return the number of bits in which each pair of codes differs.

    >>> hamming_distances(np.array([[0b1100]], np.uint8), np.array([[0b1010], [0]], np.uint8))
    array([[2, 2]], dtype=uint16)
    """
    check_same_length(left, right)
    distances = np.empty((len(left), len(right)), dtype=np.uint16)
    task_queries = queries_per_task(len(left), MAX_QUERIES_PER_TASK)
    fill_distances(as_words(left), as_words(right), task_queries, distances)
    return distances


def check_same_length(
    queries: UInt8[np.ndarray, "queries bytes"], database: UInt8[np.ndarray, "database bytes_too"]
) -> None:
    """Raise unless both have codes of the same length: kernels would read out of bounds."""
    if queries.shape[1] != database.shape[1]:
        raise InputError(
            f"got codes of {queries.shape[1]} and of {database.shape[1]} bytes; "
            "encode queries and database with the same encoder"
        )


@parallel_njit
def fill_distances(
    queries: UInt64[np.ndarray, "words n"],
    database: UInt64[np.ndarray, "words m"],
    task_queries: int,
    distances: UInt16[np.ndarray, "n m"],
) -> None:
    n, m = distances.shape
    for task in prange((n + task_queries - 1) // task_queries):
        for start in range(0, m, BLOCK_CODES):
            stop = min(start + BLOCK_CODES, m)
            for query in range(task * task_queries, min((task + 1) * task_queries, n)):
                block_distances(queries, query, database, start, stop, distances[query, start:stop])


@njit(cache=True, nogil=True)
def block_distances(queries, query, database, start, stop, out):  # type: ignore[no-untyped-def]
    """Write the distances of one query to the codes `start` to `stop` into the front of `out`."""
    # Slices first: indices that numba knows to be positive load as vectors, others as gathers.
    block = database[0, start:stop]
    out = out[: block.size]
    word = queries[0, query]
    for i in range(block.size):
        out[i] = popcount(block[i] ^ word)
    for w in range(1, database.shape[0]):
        block = database[w, start:stop]
        word = queries[w, query]
        for i in range(block.size):
            out[i] += popcount(block[i] ^ word)


def emit_popcount(typing_context: Any, word: Any) -> Any:
    """Count the ones of an integer by LLVM's instruction, which it can vectorise."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return (word(word), generate) if isinstance(word, types.Integer) else None


popcount: Any = intrinsic(emit_popcount)
