"""Indexes in memory: the base of engines in this process, `exact`, and `exact-mih`."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float, Int64, UInt8
from numpy.typing import ArrayLike

from orbithash.codes import check_n_bits
from orbithash.errors import IdInUseError, UnknownIdError
from orbithash.index.base import (
    NO_METADATA,
    Ball,
    ClosesOnExit,
    IndexStats,
    Items,
    Metadata,
    Neighbours,
    Where,
)
from orbithash.index.checks import (
    add_under_new_ids,
    check_k,
    check_radius,
    checked_ids,
    checked_items,
    checked_next_id,
    checked_queries,
)
from orbithash.index.code_table import CodeTable, empty_table
from orbithash.index.duplicates import DuplicateGroups, duplicate_groups
from orbithash.index.parted_table import PartedTable, as_parts
from orbithash.kernels.plain_search import as_words

if TYPE_CHECKING:  # opening an index must not wait for numba
    from orbithash.kernels.search.multi_index import SubstringTables

MIN_TABLE_CODES = 1 << 14  # below, a scan takes less time than looking anything up


class MemoryIndex(ClosesOnExit):
    """Codes and metadata in memory, searched by comparing the query with every code.

    An engine with a faster way derives from `DerivedIndex`. A search with a filter always compares
    the query with every code that the filter admits.
    """

    name: ClassVar[str]

    def __init__(self, n_bits: int) -> None:
        check_n_bits(n_bits)
        self.n_bits = int(n_bits)
        # Every change replaces it.
        self.table = empty_table(self.n_bits)
        self._metadata: dict[int, Metadata] = {}  # of the items that have any

    def __len__(self) -> int:
        return len(self.table)

    def add(
        self,
        ids: ArrayLike | None = None,
        codes: ArrayLike | None = None,
        metadata: Sequence[Metadata] | None = None,
    ) -> Int64[np.ndarray, " n"]:
        """Store items under ids that are not in use, by default the next ones; return the ids."""
        if ids is None:
            return add_under_new_ids(self, codes, metadata)
        ids, codes = checked_items(ids, codes, metadata, n_bits=self.n_bits)
        is_stored = self.table.positions(ids)[1]
        if is_stored.any():
            raise IdInUseError(int(ids[is_stored][0]))
        self.table = self.table.with_items(ids, codes)
        self._set_metadata(ids, metadata)
        return ids

    def update(
        self, ids: ArrayLike, codes: ArrayLike, metadata: Sequence[Metadata] | None = None
    ) -> None:
        """Store items, replacing those with the same ids."""
        ids, codes = checked_items(ids, codes, metadata, n_bits=self.n_bits)
        self.table = self.table.without(ids).with_items(ids, codes)
        self._drop_metadata(ids)
        self._set_metadata(ids, metadata)

    def remove(self, ids: ArrayLike) -> int:
        """Remove items and return how many there were; unknown ids are ignored."""
        ids = checked_ids(ids)
        before = len(self)
        self.table = self.table.without(ids)
        self._drop_metadata(ids)
        return before - len(self)

    def get(self, ids: ArrayLike) -> Items:
        """Return these items, in this order."""
        ids = checked_ids(ids)
        positions, is_stored = self.table.positions(ids)
        if not is_stored.all():
            raise UnknownIdError(int(ids[~is_stored][0]))
        return self._items(positions)

    def search(self, queries: ArrayLike, k: int, where: Where | None = None) -> Neighbours:
        """Return the k nearest items of each query; fewer columns if fewer are admitted.

        Codes are compared by Hamming distance, embeddings (floats) by asymmetric distance.
        """
        queries = checked_queries(queries, self.n_bits)
        check_k(k)
        table = self.table
        searcher = self.searcher(table) if where is None else self._admitted(table, where)
        if queries.dtype == np.uint8:
            return searcher.nearest(queries, k)
        return searcher.nearest_asymmetric(queries, k)

    def within(
        self, queries: ArrayLike, radius: int, where: Where | None = None, k: int | None = None
    ) -> list[Ball]:
        """Return the items at most `radius` bits away from each query, at most the k nearest.

        The radius counts bits, also for embeddings; these order the items.
        """
        table = self.table
        admitted = None if where is None else self._admitted(table, where)
        return self.table_within(table, queries, radius, k, admitted)

    def table_within(
        self,
        table: CodeTable | PartedTable,
        queries: ArrayLike,
        radius: int,
        k: int | None,
        admitted: CodeTable | None,
    ) -> list[Ball]:
        """Search a table, or those of its items that a filter admits, within a radius."""
        queries = checked_queries(queries, self.n_bits)
        check_radius(radius, self.n_bits)
        if k is not None:
            check_k(k)
        if queries.dtype != np.uint8:
            return (table if admitted is None else admitted).within_asymmetric(queries, radius, k)
        searcher = self.radius_searcher(table) if admitted is None else admitted
        if k is not None:
            return searcher.nearest(queries, k).balls(radius)
        return searcher.within(queries, radius)

    def duplicates(self, radius: int, where: Where | None = None) -> DuplicateGroups:
        """Return the groups of items that steps of at most `radius` bits connect; exact."""
        table = self.table
        return duplicate_groups(table if where is None else self._admitted(table, where), radius)

    def next_id(self) -> int:
        """Return an id above all ids in use."""
        return checked_next_id(max(0, int(self.table.ids[-1:][0]) + 1) if len(self) else 0)

    def iterate(self, batch_size: int = 4096) -> Iterator[Items]:
        """Iterate over all items in the order of ids, in batches."""
        for start in range(0, len(self), batch_size):
            yield self._items(np.arange(start, min(start + batch_size, len(self))))

    def stats(self) -> IndexStats:
        return IndexStats(self.name, self.n_bits, len(self), memory_bytes=self.table.nbytes)

    def close(self) -> None:
        """Do nothing: only memory is held."""

    def searcher(self, table: CodeTable | PartedTable) -> "Searcher":
        """Return what finds the k nearest codes of a table: the table itself, by a scan.

        The table is an argument, so that the caller knows which state it searches even if other
        threads replace `self.table` meanwhile.
        """
        return table

    def radius_searcher(self, table: CodeTable | PartedTable) -> "Searcher":
        """Return the searcher of a radius: the table itself, unless a structure is faster."""
        return table

    def _admitted(self, table: CodeTable, where: Where) -> CodeTable:
        if where.admits(NO_METADATA):
            return table
        ids = [i for i, metadata in self._metadata.items() if where.admits(metadata)]
        return table.among(np.array(ids, dtype=np.int64))

    def _items(self, positions: Int64[np.ndarray, " n"]) -> Items:
        ids = self.table.ids[positions]
        metadata = tuple(self._metadata.get(int(i), NO_METADATA) for i in ids)
        return Items(ids, self.table.codes(positions), metadata)

    def _set_metadata(
        self, ids: Int64[np.ndarray, " n"], metadata: Sequence[Metadata] | None
    ) -> None:
        if metadata is not None:
            self._metadata.update(zip(ids.tolist(), metadata, strict=True))

    def _drop_metadata(self, ids: Int64[np.ndarray, " n"]) -> None:
        for identifier in ids.tolist() if self._metadata else ():
            self._metadata.pop(identifier, None)


class ExactIndex(MemoryIndex):
    """Compares the query with every code, on all cores; needs only numpy and numba."""

    name = "exact"


@dataclass(frozen=True, eq=False)
class TableSearcher(ABC):
    """Searches one table by a structure that was built from it."""

    table: CodeTable

    @abstractmethod
    def nearest(self, codes: UInt8[np.ndarray, "queries bytes"], k: int) -> Neighbours:
        """Return the k nearest items of each query."""

    def nearest_asymmetric(
        self, embeddings: Float[np.ndarray, "queries bits"], k: int
    ) -> Neighbours:
        """Return the k nearest items of each embedding; by a scan, unless overridden."""
        return self.table.nearest_asymmetric(embeddings, k)

    def within(self, codes: UInt8[np.ndarray, "queries bytes"], radius: int) -> list[Ball]:
        """Return all items within the radius of each query; by a scan, unless overridden."""
        return self.table.within(codes, radius)


Searcher = CodeTable | PartedTable | TableSearcher


class DerivedIndex(MemoryIndex):
    """Codes in memory, searched by a structure that the first search after a change builds."""

    def __init__(self, n_bits: int) -> None:
        super().__init__(n_bits)
        self._built: Any = None  # the last TableSearcher
        self._built_from: CodeTable | PartedTable | None = None
        self._building = threading.Lock()

    def searcher(self, table: CodeTable | PartedTable) -> Searcher:
        """Return what was built from a table; while one thread builds it, others wait."""
        if len(table) == 0:
            return table
        with self._building:
            if self._built_from is not table:
                self._built = self.build(table.whole() if isinstance(table, PartedTable) else table)
                self._built_from = table
            searcher: TableSearcher = self._built
            return searcher

    @abstractmethod
    def build(self, table: CodeTable) -> TableSearcher:
        """Build the searcher of a table."""


class MultiIndex(DerivedIndex):
    """Returns the results of a scan by hash tables of substrings; scans where that is faster.

    Fast for near-duplicates and small radii, and up to a quarter slower than a scan otherwise. The
    tables are built by the first search and double the memory: four bytes for each code and table
    (64 bits need three or four tables), and four for each value of a substring. Fewer than 16,384
    codes are always scanned.
    """

    name = "exact-mih"

    def __init__(self, n_bits: int) -> None:
        super().__init__(n_bits)
        self._hashed: dict[int, HashedTable] = {}  # of the last state, by the id of its table

    def searcher(self, table: CodeTable | PartedTable) -> Searcher:
        """Return hash tables of each part that has none; those of unchanged parts are kept."""
        parts = [part.table for part in as_parts(table).parts]
        with self._building:
            self._hashed = {
                id(part): self._hashed.get(id(part)) or self.build(part)
                for part in parts
                if len(part) >= max(1, MIN_TABLE_CODES)
            }
            hashed = self._hashed
        if isinstance(table, PartedTable):
            return table.searched_by(lambda part: hashed.get(id(part), part))
        return hashed.get(id(table), table)

    def radius_searcher(self, table: CodeTable | PartedTable) -> Searcher:
        return self.searcher(table)

    def build(self, table: CodeTable) -> "HashedTable":
        from orbithash.kernels.search.multi_index import substring_tables

        return HashedTable(table, substring_tables(table.words, self.n_bits))

    def stats(self) -> IndexStats:
        stats = super().stats()
        tables = sum(hashed.substrings.nbytes for hashed in self._hashed.values())
        return replace(stats, memory_bytes=stats.memory_bytes + tables)


@dataclass(frozen=True, eq=False)
class HashedTable(TableSearcher):
    """A table of codes with hash tables of their substrings."""

    substrings: "SubstringTables"

    def nearest(self, codes: UInt8[np.ndarray, "queries bytes"], k: int) -> Neighbours:
        from orbithash.kernels.search.multi_index import nearest_by_tables

        distances, positions = nearest_by_tables(as_words(codes), self.substrings, k)
        return Neighbours(ids=self.table.ids[positions], distances=distances.astype(np.int64))

    def within(self, codes: UInt8[np.ndarray, "queries bytes"], radius: int) -> list[Ball]:
        from orbithash.kernels.search.multi_index import within_by_tables

        found = within_by_tables(as_words(codes), self.substrings, radius)
        return [Ball(self.table.ids[positions], distances) for distances, positions in found]
