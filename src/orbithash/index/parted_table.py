"""Several tables of codes that are searched as one: segments of an index, and what is new in it.

Ids of different parts may interleave, and a part may hold items that were removed since. Results
are those of one table without these: nearest first, ties in the order of ids.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int64, Shaped, UInt8

from orbithash.codes import code_bytes
from orbithash.index.base import Ball, Neighbours
from orbithash.index.code_table import CodeTable, empty_table, ranked_balls
from orbithash.index.packed_ids import merged_runs

if TYPE_CHECKING:
    from orbithash.index.memory import TableSearcher

EXTRA = 32  # neighbours fetched besides k, because removed items may be among the nearest
NO_IDS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Part:
    """A table, the ids of its items that were removed, and what searches it, such as itself."""

    table: CodeTable
    removed: Int64[np.ndarray, " removed"] = field(default_factory=lambda: NO_IDS)  # ascending
    searcher: "CodeTable | TableSearcher | None" = None

    def __len__(self) -> int:
        return len(self.table) - len(self.removed)

    def nearest(self, queries: Shaped[np.ndarray, "queries _"], k: int) -> Neighbours:
        """Return the k nearest items of each query; a query is a code, or an embedding."""
        searcher = self.table if self.searcher is None else self.searcher
        search = searcher.nearest if queries.dtype == np.uint8 else searcher.nearest_asymmetric
        k = min(k, len(self))
        n = min(k + min(len(self.removed), EXTRA), len(self.table))
        while True:
            found = search(queries, n)
            if len(self.removed) == 0:
                return found
            is_stored = ~self.is_removed(found.ids)
            # After k items and all removed ones, k items are certain.
            if n >= min(k + len(self.removed), len(self.table)) or is_stored.sum(1).min() >= k:
                order = np.argsort(~is_stored, axis=1, kind="stable")[:, :k]
                return Neighbours(
                    np.take_along_axis(found.ids, order, 1),
                    np.take_along_axis(found.distances, order, 1),
                )
            n = min(4 * n, k + len(self.removed), len(self.table))

    def within(self, codes: UInt8[np.ndarray, "queries bytes"], radius: int) -> list[Ball]:
        balls = (self.table if self.searcher is None else self.searcher).within(codes, radius)
        if len(self.removed) == 0:
            return balls
        kept = [~self.is_removed(ball.ids) for ball in balls]
        return [
            Ball(ball.ids[keep], ball.distances[keep])
            for ball, keep in zip(balls, kept, strict=True)
        ]

    def is_removed(self, ids: Int64[np.ndarray, "*shape"]) -> Bool[np.ndarray, "*shape"]:
        if len(self.removed) == 0:
            return np.zeros(ids.shape, dtype=np.bool_)
        places = np.minimum(np.searchsorted(self.removed, ids), len(self.removed) - 1)
        return np.asarray(self.removed[places] == ids)

    def find(
        self, ids: Int64[np.ndarray, " m"]
    ) -> tuple[Int64[np.ndarray, " m"], Bool[np.ndarray, " m"]]:
        """Return the positions of ids, and which of them are stored."""
        positions, is_stored = self.table.positions(ids)
        return positions, is_stored & ~self.is_removed(ids)

    def positions_of_ranks(self, ranks: Int64[np.ndarray, " m"]) -> Int64[np.ndarray, " m"]:
        """Return the positions of the items with these numbers among those not removed."""
        if len(self.removed) == 0:
            return ranks
        gone = self.table.positions(self.removed)[0]
        return ranks + np.searchsorted(gone - np.arange(len(gone)), ranks, side="right")


@dataclass(frozen=True, eq=False)
class PartedTable:
    """The items of several parts, of which no two hold the same id."""

    n_bits: int
    parts: tuple[Part, ...]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def nbytes(self) -> int:
        return sum(part.table.nbytes + part.removed.nbytes for part in self.parts)

    def nearest(self, codes: UInt8[np.ndarray, "queries bytes"], k: int) -> Neighbours:
        """Return the k nearest items of each query."""
        return self._nearest(codes, k)

    def nearest_asymmetric(
        self, embeddings: Float[np.ndarray, "queries bits"], k: int
    ) -> Neighbours:
        """Return the k nearest items of each embedding."""
        return self._nearest(embeddings, k)

    def _nearest(self, queries: Shaped[np.ndarray, "queries _"], k: int) -> Neighbours:
        found = [part.nearest(queries, k) for part in self.parts if len(part)]
        if not found or len(queries) == 0:
            empty = empty_table(self.n_bits)
            nearest = empty.nearest if queries.dtype == np.uint8 else empty.nearest_asymmetric
            return nearest(queries, k) if not found else found[0]
        ids = np.concatenate([each.ids for each in found], axis=1)
        distances = np.concatenate([each.distances for each in found], axis=1)
        order = np.lexsort((ids, distances))[:, :k]
        return Neighbours(
            np.take_along_axis(ids, order, 1), np.take_along_axis(distances, order, 1)
        )

    def within(self, codes: UInt8[np.ndarray, "queries bytes"], radius: int) -> list[Ball]:
        """Return all items within the radius of each query."""
        found = [part.within(codes, radius) for part in self.parts if len(part)]
        if not found:
            return empty_table(self.n_bits).within(codes, radius)
        balls = []
        for of_query in zip(*found, strict=True):
            ids = np.concatenate([ball.ids for ball in of_query])
            distances = np.concatenate([ball.distances for ball in of_query])
            order = np.lexsort((ids, distances))
            balls.append(Ball(ids[order], distances[order]))
        return balls

    def within_asymmetric(
        self, embeddings: Float[np.ndarray, "queries bits"], radius: int, k: int | None
    ) -> list[Ball]:
        """Return all items within the radius of each embedding, at most the k nearest."""
        return ranked_balls(self, embeddings, radius, k)

    def among(self, ids: Int64[np.ndarray, " m"]) -> CodeTable:
        """Return the items with these ids, in memory; unknown ids are ignored."""
        ids = np.sort(ids)
        table = empty_table(self.n_bits)
        for part in self.parts:
            positions, is_stored = part.find(ids)
            found = part.table.subset(positions[is_stored])
            table = table.with_items(found.ids[:], found.codes())
        return table

    def codes_of(
        self, ids: Int64[np.ndarray, " m"]
    ) -> tuple[UInt8[np.ndarray, "m bytes"], Bool[np.ndarray, " m"]]:
        """Return the codes of ids, and which of them are stored; others have no bits set."""
        codes = np.zeros((len(ids), code_bytes(self.n_bits)), dtype=np.uint8)
        stored = np.zeros(len(ids), dtype=np.bool_)
        for part in self.parts:
            positions, is_stored = part.find(ids)
            codes[is_stored] = part.table.codes(positions[is_stored])
            stored |= is_stored
        return codes, stored

    def id_batches(self, size: int) -> Iterator[Int64[np.ndarray, " n"]]:
        """Yield the ids of all items in ascending order, `size` in each but the last."""
        waiting = NO_IDS
        for slices in merged_runs([part.table.ids for part in self.parts], size):
            found = [part.table.ids[run] for part, run in zip(self.parts, slices, strict=True)]
            kept = [ids[~part.is_removed(ids)] for part, ids in zip(self.parts, found, strict=True)]
            waiting = np.concatenate([waiting, np.sort(np.concatenate([NO_IDS, *kept]))])
            while len(waiting) >= size:
                yield waiting[:size]
                waiting = waiting[size:]
        if len(waiting):
            yield waiting

    def ids_of_ranks(self, ranks: Int64[np.ndarray, " m"]) -> Int64[np.ndarray, " m"]:
        """Return the ids at places in the ascending order of all ids; the places ascend."""
        parts = sorted(
            (part for part in self.parts if len(part)), key=lambda part: int(part.table.ids[:1][0])
        )
        ends = [int(part.table.ids[-1:][0]) for part in parts]
        starts = [int(part.table.ids[:1][0]) for part in parts]
        if any(end >= start for end, start in zip(ends, starts[1:], strict=False)):
            # Parts interleave.
            ids: Int64[np.ndarray, " n"] = np.concatenate([NO_IDS, *self.id_batches(1 << 20)])
            return np.asarray(ids[ranks])
        found, before = [NO_IDS], 0
        for part in parts:
            of_part = ranks[(ranks >= before) & (ranks < before + len(part))] - before
            found.append(part.table.ids[part.positions_of_ranks(of_part)])
            before += len(part)
        return np.concatenate(found)

    def whole(self) -> CodeTable:
        """Return one table of all items, in memory: 16 bytes for each code of 64 bits."""
        if len(self.parts) == 1 and len(self.parts[0].removed) == 0:
            return self.parts[0].table
        ids = np.concatenate([NO_IDS, *self.id_batches(1 << 20)])
        words = np.empty((len(empty_table(self.n_bits).words), len(ids)), dtype=np.uint64)
        for part in self.parts:
            positions, is_stored = part.find(ids)
            words[:, is_stored] = part.table.words[:, positions[is_stored]]
        return CodeTable(self.n_bits, ids, words)

    def searched_by(
        self, searcher: Callable[[CodeTable], "CodeTable | TableSearcher"]
    ) -> "PartedTable":
        """Return the same items with another searcher of each part."""
        parts = tuple(Part(part.table, part.removed, searcher(part.table)) for part in self.parts)
        return PartedTable(self.n_bits, parts)


def as_parts(table: CodeTable | PartedTable) -> PartedTable:
    """Return a table as one of parts."""
    if isinstance(table, PartedTable):
        return table
    return PartedTable(table.n_bits, (Part(table),))
