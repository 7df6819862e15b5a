"""Exact search by multi-index hashing, for queries whose neighbours are near."""

from dataclasses import replace

import numpy as np
from jaxtyping import UInt8

from orbithash.index.base import Ball, IndexStats, Neighbours
from orbithash.index.code_table import CodeTable
from orbithash.index.memory import DerivedIndex
from orbithash.kernels.hamming import as_words
from orbithash.kernels.multi_index import (
    SubstringTables,
    nearest_by_tables,
    substring_tables,
    within_by_tables,
)


class MultiIndex(DerivedIndex):
    """Finds what a scan finds, by tables of parts of the codes; scans where that is quicker.

    Quick for near-duplicates and small radii, and up to a quarter slower for the rest. Its tables
    are built when they are first searched, and double the memory: four bytes for each code and
    table, of which 64 bits need three or four, and four for each value.
    """

    name = "exact-mih"

    def nearest(
        self, table: CodeTable, codes: UInt8[np.ndarray, "queries bytes"], k: int
    ) -> Neighbours:
        """The k nearest of all items, ties cut in the order of ids."""
        distances, positions = nearest_by_tables(as_words(codes), self.built(table), k)
        return Neighbours(ids=table.ids[positions], distances=distances.astype(np.int64))

    def balls(
        self, table: CodeTable, codes: UInt8[np.ndarray, "queries bytes"], radius: int
    ) -> list[Ball]:
        """All items within the radius."""
        found = within_by_tables(as_words(codes), self.built(table), radius)
        return [Ball(table.ids[positions], distances) for distances, positions in found]

    def build(self, table: CodeTable) -> SubstringTables:
        return substring_tables(table.words, self.n_bits)

    def stats(self) -> IndexStats:
        stats, built = super().stats(), self._built
        tables = 0 if built is None else built.structure.nbytes
        return replace(stats, memory_bytes=stats.memory_bytes + tables)
