"""Search in plain numpy, and the layout in which all kernels read codes.

Few codes are searched by these functions: loading numba would take longer, and compiling a kernel
for the first time much longer. They are also the references of the compiled loops.

Kernels read codes as 64-bit words in an array `(words, n)`, as `as_words` returns them. The
innermost loop then runs over images and compiles to vector instructions for any number of words.
"""

import numpy as np
from jaxtyping import Int32, Int64, UInt8, UInt16, UInt64

WORD_BYTES = 8


def as_words(codes: UInt8[np.ndarray, "n bytes"]) -> UInt64[np.ndarray, "words n"]:
    """Return codes as 64-bit words, padded with 0, one row per word.

    >>> as_words(np.array([[1, 2], [0, 3]], dtype=np.uint8))
    array([[513, 768]], dtype=uint64)
    """
    padding = -codes.shape[1] % WORD_BYTES
    # Codes of one whole word are not copied.
    padded = np.ascontiguousarray(codes)
    if padding:
        padded = np.pad(padded, ((0, 0), (0, padding)))
    # The byte order within a word does not matter to popcount. Read-only or unaligned arrays are
    # other types to numba, which would compile every kernel again for them.
    return np.require(padded.view(np.uint64).T, requirements=["C", "ALIGNED", "WRITEABLE"])


def nearest_reference(
    queries: UInt8[np.ndarray, "queries bytes"],
    database: UInt8[np.ndarray, "database bytes"],
    k: int,
) -> tuple[Int32[np.ndarray, "queries k"], Int64[np.ndarray, "queries k"]]:
    """Compute `nearest` in plain numpy, by a stable sort of all distances."""
    distances = hamming_distances_reference(queries, database)
    positions = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, positions, axis=1).astype(np.int32), positions


def within_reference(
    queries: UInt8[np.ndarray, "queries bytes"],
    database: UInt8[np.ndarray, "database bytes"],
    radius: int,
) -> list[tuple[Int64[np.ndarray, " found"], Int64[np.ndarray, " found"]]]:
    """Compute `within_words` of packed codes in plain numpy."""
    found = []
    for distances in hamming_distances_reference(queries, database):
        order = np.argsort(distances, kind="stable")
        positions = order[distances[order] <= radius]
        found.append((distances[positions].astype(np.int64), positions))
    return found


def hamming_distances_reference(
    left: UInt8[np.ndarray, "n bytes"], right: UInt8[np.ndarray, "m bytes"]
) -> UInt16[np.ndarray, "n m"]:
    """Compute `hamming_distances` in plain numpy, with memory for every word of every pair."""
    different = np.bitwise_count(as_words(left)[:, :, None] ^ as_words(right)[:, None, :])
    return np.asarray(different.sum(axis=0, dtype=np.uint16))


def connected_reference(
    codes: UInt8[np.ndarray, "n bytes"], radius: int
) -> Int64[np.ndarray, " n"]:
    """Compute `connected_words` of packed codes in plain numpy, by comparing all pairs."""
    groups = np.arange(len(codes))
    for near in hamming_distances_reference(codes, codes) <= radius:
        joined = groups[near]
        groups[np.isin(groups, joined)] = joined.min()
    return groups
