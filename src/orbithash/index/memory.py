"""An index in memory: compares with every code, or searches a structure built from them."""

import threading
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int64, UInt8

from orbithash.codes import check_codes, check_n_bits
from orbithash.errors import IdInUseError
from orbithash.index.base import (
    NOTHING_KNOWN,
    Ball,
    ClosedAfterwards,
    IndexStats,
    Items,
    Metadata,
    Neighbours,
    Where,
)
from orbithash.index.checks import check_k, check_radius, checked_ids, checked_items, not_there
from orbithash.index.code_table import CodeTable, empty_table
from orbithash.kernels.hamming import as_words
from orbithash.kernels.nearest import nearest_words
from orbithash.kernels.within import within_words


class MemoryIndex(ClosedAfterwards):
    """Codes and metadata in memory, searched by comparing the query with every code.

    An engine with another way to the nearest codes overrides `nearest`, with another way to those
    within a radius `balls`. Both are told which table to search, so that whoever calls knows what
    state the answer is of, also when other threads bring a newer one. A search among some items
    only always compares with every one of them.
    """

    name: ClassVar[str]

    def __init__(self, n_bits: int) -> None:
        check_n_bits(n_bits)
        self.n_bits = int(n_bits)
        self.table = empty_table(self.n_bits)  # replaced whole by every change
        self._metadata: dict[int, Metadata] = {}  # of those items that have any

    def __len__(self) -> int:
        return len(self.table)

    def add(
        self, ids: np.ndarray, codes: np.ndarray, metadata: Sequence[Metadata] | None = None
    ) -> None:
        """Store items under ids that are not in use yet."""
        ids = checked_items(ids, codes, metadata, n_bits=self.n_bits)
        there = self.table.positions(ids)[1]
        if there.any():
            raise IdInUseError(int(ids[there][0]))
        self.table = self.table.with_items(ids, codes)
        self._remember(ids, metadata)

    def update(
        self, ids: np.ndarray, codes: np.ndarray, metadata: Sequence[Metadata] | None = None
    ) -> None:
        """Store items in the place of those with the same ids, if there are any."""
        ids = checked_items(ids, codes, metadata, n_bits=self.n_bits)
        self.table = self.table.without(ids).with_items(ids, codes)
        self._forget(ids)
        self._remember(ids, metadata)

    def remove(self, ids: np.ndarray) -> int:
        """Forget these items; those that are not there do not matter. Returns how many were."""
        ids = checked_ids(ids)
        before = len(self)
        self.table = self.table.without(ids)
        self._forget(ids)
        return before - len(self)

    def get(self, ids: np.ndarray) -> Items:
        """These items, in the order asked for."""
        ids = checked_ids(ids)
        positions, there = self.table.positions(ids)
        if not there.all():
            raise not_there(int(ids[~there][0]))
        return self._items(positions)

    def search(self, codes: np.ndarray, k: int, where: Where | None = None) -> Neighbours:
        """The k nearest items of each query; fewer columns when fewer are stored or admitted."""
        check_codes(codes, self.n_bits)
        check_k(k)
        table = self.table
        if where is None:
            return self.nearest(table, codes, min(k, len(table)))
        return nearest_of(self._admitted(table, where), codes, k)

    def within(self, codes: np.ndarray, radius: int, where: Where | None = None) -> list[Ball]:
        """The items at most `radius` bits away from each query."""
        check_codes(codes, self.n_bits)
        check_radius(radius)
        table = self.table
        if where is None:
            return self.balls(table, codes, radius)
        return balls_of(self._admitted(table, where), codes, radius)

    def iterate(self, batch_size: int = 4096) -> Iterator[Items]:
        """All items in the order of ids, some at a time."""
        for start in range(0, len(self), batch_size):
            yield self._items(np.arange(start, min(start + batch_size, len(self))))

    def stats(self) -> IndexStats:
        memory = self.table.ids.nbytes + self.table.words.nbytes
        return IndexStats(self.name, self.n_bits, len(self), memory_bytes=memory)

    def close(self) -> None:
        """Nothing is held but memory."""

    def nearest(
        self, table: CodeTable, codes: UInt8[np.ndarray, "queries bytes"], k: int
    ) -> Neighbours:
        """The k nearest of all items of a table, of which there are at least k."""
        return nearest_of(table, codes, k)

    def balls(
        self, table: CodeTable, codes: UInt8[np.ndarray, "queries bytes"], radius: int
    ) -> list[Ball]:
        """All items of a table within the radius of each query."""
        return balls_of(table, codes, radius)

    def _items(self, positions: Int64[np.ndarray, " n"]) -> Items:
        ids = self.table.ids[positions]
        metadata = tuple(self._metadata.get(int(i), NOTHING_KNOWN) for i in ids)
        return Items(ids, self.table.codes(positions), metadata)

    def _admitted(self, table: CodeTable, where: Where) -> CodeTable:
        if where.admits(NOTHING_KNOWN):
            return table
        ids = [i for i, metadata in self._metadata.items() if where.admits(metadata)]
        return table.among(np.array(ids, dtype=np.int64))

    def _remember(self, ids: Int64[np.ndarray, " n"], metadata: Sequence[Metadata] | None) -> None:
        if metadata is not None:
            self._metadata.update(zip(ids.tolist(), metadata, strict=True))

    def _forget(self, ids: Int64[np.ndarray, " n"]) -> None:
        for identifier in ids.tolist() if self._metadata else ():
            self._metadata.pop(identifier, None)


def nearest_of(table: CodeTable, codes: UInt8[np.ndarray, "queries bytes"], k: int) -> Neighbours:
    """The nearest by comparison with every code; ties cut in the order of ids."""
    distances, positions = nearest_words(as_words(codes), table.words, min(k, len(table)))
    return Neighbours(ids=table.ids[positions], distances=distances.astype(np.int64))


def balls_of(
    table: CodeTable, codes: UInt8[np.ndarray, "queries bytes"], radius: int
) -> list[Ball]:
    found = within_words(as_words(codes), table.words, radius)
    return [Ball(table.ids[positions], distances) for distances, positions in found]


class ExactIndex(MemoryIndex):
    """Compares the query with every code, on all cores; needs nothing but numpy and numba."""

    name = "exact"


@dataclass(frozen=True, eq=False)
class Built:
    """What was made of a table, whole."""

    table: CodeTable
    structure: Any


class DerivedIndex(MemoryIndex):
    """Codes in memory, and what `build` makes of them when they are first searched.

    A table never changes, so every change of the codes means building anew.
    """

    def __init__(self, n_bits: int) -> None:
        super().__init__(n_bits)
        self._built: Built | None = None
        self._building = threading.Lock()

    def built(self, table: CodeTable) -> Any:
        """The structure of a table; while one thread makes it, others wait instead of making it."""
        with self._building:
            if self._built is None or self._built.table is not table:
                self._built = Built(table, self.build(table))
            return self._built.structure

    def built_already(self) -> Any | None:
        """The structure of the codes as they are now, if a search has had it built."""
        built = self._built
        return None if built is None or built.table is not self.table else built.structure

    @abstractmethod
    def build(self, table: CodeTable) -> Any:
        """What will be searched, ready to be."""
