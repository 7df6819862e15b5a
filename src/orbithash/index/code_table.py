"""Codes in memory, sorted by id and laid out as the kernels read them.

Sorted, so that a kernel that keeps ties in database order keeps them in the order of ids. A table
never changes: what would change it makes another, so that who searches one is not disturbed.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64, UInt8, UInt64

from orbithash.codes import code_bytes
from orbithash.kernels.hamming import WORD_BYTES, as_words


@dataclass(frozen=True, eq=False)
class CodeTable:
    """Ids in ascending order, and their codes word by word: 16 bytes for each code of 64 bits."""

    n_bits: int
    ids: Int64[np.ndarray, " n"]
    words: UInt64[np.ndarray, "words n"]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def n_bytes(self) -> int:
        return code_bytes(self.n_bits)

    def codes(
        self, positions: Int64[np.ndarray, " m"] | slice = slice(None)
    ) -> UInt8[np.ndarray, "m bytes"]:
        rows = np.ascontiguousarray(self.words[:, positions].T)
        return rows.view(np.uint8)[:, : self.n_bytes]

    def positions(
        self, ids: Int64[np.ndarray, " m"]
    ) -> tuple[Int64[np.ndarray, " m"], Bool[np.ndarray, " m"]]:
        """Where ids are, and which of them are there at all."""
        positions = np.searchsorted(self.ids, ids)
        if len(self) == 0:
            return positions, np.zeros(len(ids), dtype=np.bool_)
        there = self.ids[np.minimum(positions, len(self) - 1)] == ids
        return positions, there

    def subset(self, positions: Int64[np.ndarray, " m"] | Bool[np.ndarray, " n"]) -> "CodeTable":
        """The items at these positions, which must ascend, or of this mask."""
        words = np.ascontiguousarray(self.words[:, positions])
        return CodeTable(self.n_bits, self.ids[positions], words)

    def among(self, ids: Int64[np.ndarray, " m"]) -> "CodeTable":
        """The items with these ids; ids that are not there do not matter."""
        positions, there = self.positions(np.sort(ids))
        return self.subset(positions[there])

    def without(self, ids: Int64[np.ndarray, " m"]) -> "CodeTable":
        positions, there = self.positions(ids)
        if not there.any():
            return self
        staying = np.ones(len(self), dtype=np.bool_)
        staying[positions[there]] = False
        return self.subset(staying)

    def with_items(
        self, ids: Int64[np.ndarray, " m"], codes: UInt8[np.ndarray, "m bytes"]
    ) -> "CodeTable":
        """The table with further items, whose ids it does not hold."""
        if len(ids) == 0:
            return self
        all_ids = np.concatenate([self.ids, ids])
        words = np.concatenate([self.words, as_words(codes)], axis=1)
        if np.any(all_ids[1:] < all_ids[:-1]):
            order = np.argsort(all_ids)
            all_ids, words = all_ids[order], np.ascontiguousarray(words[:, order])
        return CodeTable(self.n_bits, all_ids, words)


def empty_table(n_bits: int) -> CodeTable:
    n_words = -(-code_bytes(n_bits) // WORD_BYTES)
    words = np.empty((n_words, 0), dtype=np.uint64)
    return CodeTable(n_bits, np.empty(0, dtype=np.int64), words)
