"""Packed codes as machine words, and the loop that all Hamming kernels are built on.

Codes are laid out word by word, `(words, n)`: the innermost loop then runs over images, so that
it compiles to vector instructions whatever the number of words.
"""

from typing import Any

import numpy as np
from jaxtyping import UInt8, UInt64
from numba import njit, types
from numba.extending import intrinsic

from orbithash.errors import InputError

WORD_BYTES = 8


def as_words(codes: UInt8[np.ndarray, "n bytes"]) -> UInt64[np.ndarray, "words n"]:
    """Codes as 64-bit words, padded with 0, one row per word.

    >>> as_words(np.array([[1, 2], [0, 3]], dtype=np.uint8))
    array([[513, 768]], dtype=uint64)
    """
    padding = -codes.shape[1] % WORD_BYTES
    # Without padding, codes of one word are not even copied.
    whole = np.ascontiguousarray(codes)
    if padding:
        whole = np.pad(whole, ((0, 0), (0, padding)))
    # Which byte lands where in a word does not matter: popcount adds them all. Arrays that are
    # read-only or not aligned would be other types to numba, for which it compiles anew.
    return np.require(whole.view(np.uint64).T, requirements=["C", "ALIGNED", "WRITEABLE"])


def check_same_length(
    queries: UInt8[np.ndarray, "queries bytes"], database: UInt8[np.ndarray, "database bytes_too"]
) -> None:
    """Raise unless both are codes of as many bytes: the kernels would read beyond the shorter."""
    if queries.shape[1] != database.shape[1]:
        raise InputError(
            f"got codes of {queries.shape[1]} and of {database.shape[1]} bytes; "
            "encode queries and database with the same encoder"
        )


def emit_popcount(typing_context: Any, word: Any) -> Any:
    """Number of ones in an integer, as the one instruction that LLVM can vectorise."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return (word(word), generate) if isinstance(word, types.Integer) else None


popcount: Any = intrinsic(emit_popcount)


@njit(cache=True, nogil=True)
def block_distances(queries, query, database, start, stop, out):  # type: ignore[no-untyped-def]
    """Distances of one query to the images `start` to `stop`, into the beginning of `out`."""
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
