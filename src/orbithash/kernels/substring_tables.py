"""Hash tables of substrings of codes, for multi-index hashing.

A code is cut into substrings of about as many bits as the number of codes has, and every table
says which codes have a given value in one of them.

Norouzi, Punjani and Fleet, "Fast Exact Search in Hamming Space with Multi-Index Hashing", 2014.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64, UInt32, UInt64
from numba import njit, prange

from orbithash.errors import InputError
from orbithash.kernels.threads import parallel

FEWEST_BITS, MOST_BITS = 8, 24  # of a substring: a table has a place for each of its values


@dataclass(frozen=True, eq=False)
class SubstringTables:
    """The codes with value v in substring t are `rows[t, a:b]`.

    a and b are at `offsets[bases[t] + v]` and one further.
    """

    starts: Int64[np.ndarray, " tables"]  # first bit of each substring
    widths: Int64[np.ndarray, " tables"]
    bases: Int64[np.ndarray, " tables"]
    offsets: UInt32[np.ndarray, " values"]
    rows: UInt32[np.ndarray, "tables n"]

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The same as compiled loops take them."""
        return self.starts, self.widths, self.bases, self.offsets, self.rows

    @property
    def nbytes(self) -> int:
        return self.offsets.nbytes + self.rows.nbytes


def substring_tables(words: UInt64[np.ndarray, "words n"], n_bits: int) -> SubstringTables:
    """The tables of codes that are laid out by `as_words`."""
    n, n_bits = words.shape[1], 8 * -(-n_bits // 8)  # what a last byte is padded with, too
    if n > np.iinfo(np.uint32).max:
        raise InputError(f"got {n} codes, and tables hold 4,294,967,295; use the engine exact")
    most = min(MOST_BITS, max(FEWEST_BITS, n.bit_length()))
    bounds = np.linspace(0, n_bits, -(-n_bits // most) + 1).astype(np.int64)
    starts, widths = bounds[:-1], np.diff(bounds)
    sizes = (1 << widths) + 1
    bases = np.cumsum(sizes) - sizes
    offsets = np.zeros(int(sizes.sum()), dtype=np.uint32)
    rows = np.empty((len(starts), n), dtype=np.uint32)
    fill_tables(words, starts, widths, bases, offsets, rows)
    return SubstringTables(starts, widths, bases, offsets, rows)


@njit(cache=True, nogil=True)
def cut(word, next_word, start, width):  # type: ignore[no-untyped-def]
    """Some bits from place `start % 64` on, which may reach into the next word."""
    # Numbers, no arrays: counting references to arrays would take longer than all of this.
    shift = np.uint64(start & 63)
    bits = word >> shift
    if shift > 0:
        bits |= next_word << (np.uint64(64) - shift)
    return np.int64(bits & np.uint64((1 << width) - 1))


@parallel
def fill_tables(words, starts, widths, bases, offsets, rows):  # type: ignore[no-untyped-def]
    """A counting sort by each substring; equal ones stay in database order."""
    n_words, n = words.shape
    for table in prange(starts.size):
        start, width, base = starts[table], widths[table], bases[table]
        word = start >> 6
        beyond = min(word + 1, n_words - 1)  # the last substring ends with the last word
        for i in range(n):
            value = cut(words[word, i], words[beyond, i], start, width)
            offsets[base + 1 + value] += np.uint32(1)
        for value in range(1 << width):
            offsets[base + 1 + value] += offsets[base + value]
        # Each beginning moves to its value's end as the codes come in, which is the next beginning.
        for i in range(n):
            place = base + cut(words[word, i], words[beyond, i], start, width)
            rows[table, offsets[place]] = i
            offsets[place] += np.uint32(1)
        for value in range(1 << width, 0, -1):
            offsets[base + value] = offsets[base + value - 1]
        offsets[base] = 0
