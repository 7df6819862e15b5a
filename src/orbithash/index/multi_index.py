"""Exact search by multi-index hashing, for queries whose neighbours are near."""

from dataclasses import replace

import numpy as np
from jaxtyping import UInt8

from orbithash.index.base import Ball, IndexStats, Neighbours
from orbithash.index.code_table import CodeTable
from orbithash.index.memory import MemoryIndex
from orbithash.kernels.popcount import as_words
from orbithash.kernels.probing import HashedCodes, nearest_hashed, within_hashed
from orbithash.kernels.substring_tables import substring_tables


class MultiIndex(MemoryIndex):
    """Finds what a scan finds, by tables of parts of the codes; scans where that is quicker.

    Quick for near-duplicates and small radii, and up to a quarter slower for the rest. Its tables
    are built when they are first searched, and double the memory: four bytes for each code and
    table, of which 64 bits need three or four, and four for each value.
    """

    name = "exact-mih"

    def __init__(self, n_bits: int) -> None:
        super().__init__(n_bits)
        self._built: tuple[CodeTable, HashedCodes] | None = None

    def nearest(self, codes: UInt8[np.ndarray, "queries bytes"], k: int) -> Neighbours:
        """The k nearest of all items, ties cut in the order of ids."""
        table, hashed = self.built()
        distances, positions = nearest_hashed(as_words(codes), hashed, k)
        return Neighbours(ids=table.ids[positions], distances=distances.astype(np.int64))

    def balls(self, codes: UInt8[np.ndarray, "queries bytes"], radius: int) -> list[Ball]:
        """All items within the radius."""
        table, hashed = self.built()
        found = within_hashed(as_words(codes), hashed, radius)
        return [Ball(table.ids[positions], distances) for distances, positions in found]

    def built(self) -> tuple[CodeTable, HashedCodes]:
        """The codes and their tables, made when they are first searched."""
        table, built = self.table, self._built
        if built is None or built[0] is not table:
            hashed = HashedCodes(table.words, substring_tables(table.words, self.n_bits))
            built = self._built = (table, hashed)
        return built

    def stats(self) -> IndexStats:
        stats, built = super().stats(), self._built
        tables = 0 if built is None else built[1].tables.nbytes
        return replace(stats, memory_bytes=stats.memory_bytes + tables)
