"""Codes sorted by id, in the layout that the kernels read: in memory, or mapped from a file.

The kernels keep ties in database order, so sorting by id puts ties in the order of ids. A table is
immutable: a change creates another table, and a search that has started is not affected.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int64, UInt8, UInt64

from orbithash.codes import (
    GRID,
    asymmetric_distances,
    binarize,
    bit_weights,
    code_bytes,
    pack,
)
from orbithash.index.base import Ball, Neighbours
from orbithash.index.packed_ids import Ids, find_ids
from orbithash.kernels.plain_search import (
    WORD_BYTES,
    as_words,
    nearest_reference,
    within_reference,
)

# Up to so many pairs of query and code, numpy takes some 50 microseconds by Hamming distance. numba
# and its kernels take half a second to load, and seconds to compile for the first time.
FEW_PAIRS = 1 << 14
# Pairs times bits, by asymmetric distance: numpy takes up to 2 milliseconds.
FEW_BITS = 1 << 20


@dataclass(frozen=True, eq=False)
class CodeTable:
    """Ids in ascending order and their codes by words: 8 bytes for each code of 64 bits.

    An array of ids takes 8 more; a range of ids takes none.
    """

    n_bits: int
    ids: Ids
    words: UInt64[np.ndarray, "words n"]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        return self.ids.nbytes + self.words.nbytes

    def nearest(self, codes: UInt8[np.ndarray, "queries bytes"], k: int) -> Neighbours:
        """Return the k nearest items of each query, comparing it with every code."""
        if len(codes) * len(self) <= FEW_PAIRS:
            distances, positions = nearest_reference(codes, self.codes(), k)
        else:
            from orbithash.kernels.search.nearest import nearest_words

            distances, positions = nearest_words(as_words(codes), self.words, k)
        return Neighbours(ids=self.ids[positions], distances=distances.astype(np.int64))

    def nearest_asymmetric(
        self, embeddings: Float[np.ndarray, "queries bits"], k: int
    ) -> Neighbours:
        """Return the k nearest items of each embedding, comparing it with every code."""
        if len(embeddings) * len(self) * self.n_bits <= FEW_BITS:
            distances = asymmetric_distances(embeddings, self.codes())
            positions = np.argsort(distances, axis=1, kind="stable")[:, :k]
            distances = np.take_along_axis(distances, positions, axis=1)
        else:
            from orbithash.kernels.search.asymmetric import nearest_weighted

            weights, least = bit_weights(embeddings)
            queries = as_words(pack(binarize(embeddings)))
            sums, positions = nearest_weighted(queries, weights, self.words, k)
            distances = (sums + least[:, None]) / GRID
        return Neighbours(ids=self.ids[positions], distances=distances)

    def within_asymmetric(
        self, embeddings: Float[np.ndarray, "queries bits"], radius: int, k: int | None
    ) -> list[Ball]:
        """Return all items within the radius of each embedding, at most the k nearest."""
        return ranked_balls(self, embeddings, radius, k)

    def within(self, codes: UInt8[np.ndarray, "queries bytes"], radius: int) -> list[Ball]:
        """Return all items within the radius of each query, comparing it with every code."""
        if len(codes) * len(self) <= FEW_PAIRS:
            found = within_reference(codes, self.codes(), radius)
        else:
            from orbithash.kernels.search.nearest import within_words

            found = within_words(as_words(codes), self.words, radius)
        return [Ball(self.ids[positions], distances) for distances, positions in found]

    def codes(
        self, positions: Int64[np.ndarray, " m"] | slice = slice(None)
    ) -> UInt8[np.ndarray, "m bytes"]:
        rows = np.ascontiguousarray(self.words[:, positions].T)
        return rows.view(np.uint8)[:, : code_bytes(self.n_bits)]

    def positions(
        self, ids: Int64[np.ndarray, " m"]
    ) -> tuple[Int64[np.ndarray, " m"], Bool[np.ndarray, " m"]]:
        """Return the positions of ids, and which of them the table holds at all."""
        return find_ids(self.ids, ids)

    def subset(self, positions: Int64[np.ndarray, " m"] | Bool[np.ndarray, " n"]) -> "CodeTable":
        """Return the items at ascending positions, or of a mask."""
        words = np.ascontiguousarray(self.words[:, positions])
        return CodeTable(self.n_bits, self.ids[positions], words)

    def among(self, ids: Int64[np.ndarray, " m"]) -> "CodeTable":
        """Return the items with these ids; unknown ids are ignored."""
        positions, is_stored = self.positions(np.sort(ids))
        return self.subset(positions[is_stored])

    def without(self, ids: Int64[np.ndarray, " m"]) -> "CodeTable":
        """Return the items with other ids; unknown ids are ignored."""
        positions, is_stored = self.positions(ids)
        if not is_stored.any():
            return self
        kept = np.ones(len(self), dtype=np.bool_)
        kept[positions[is_stored]] = False
        return self.subset(kept)

    def with_items(
        self, ids: Int64[np.ndarray, " m"], codes: UInt8[np.ndarray, "m bytes"]
    ) -> "CodeTable":
        """Return the table with further items, whose ids it does not hold."""
        if len(ids) == 0:
            return self
        all_ids = np.concatenate([self.ids[:], ids])
        words = np.concatenate([self.words, as_words(codes)], axis=1)
        if np.any(all_ids[1:] < all_ids[:-1]):
            order = np.argsort(all_ids)
            all_ids, words = all_ids[order], np.ascontiguousarray(words[:, order])
        return CodeTable(self.n_bits, all_ids, words)


def empty_table(n_bits: int) -> CodeTable:
    n_words = -(-code_bytes(n_bits) // WORD_BYTES)
    words = np.empty((n_words, 0), dtype=np.uint64)
    return CodeTable(n_bits, np.empty(0, dtype=np.int64), words)


@runtime_checkable
class Searched(Protocol):
    """A table, or several that are searched as one."""

    def within(self, codes: UInt8[np.ndarray, "queries bytes"], radius: int) -> list[Ball]: ...

    def among(self, ids: Int64[np.ndarray, " m"]) -> CodeTable: ...


def ranked_balls(
    table: Searched,
    embeddings: Float[np.ndarray, "queries bits"],
    radius: int,
    k: int | None,
) -> list[Ball]:
    """Return the items within the radius of each embedding's bits, ranked by asymmetric distance.

    With `k`, only the k nearest are returned.
    """
    balls = []
    for query, ball in enumerate(table.within(pack(binarize(embeddings)), radius)):
        items = table.among(ball.ids)
        nearest = items.nearest_asymmetric(embeddings[query : query + 1], k or len(items))
        balls.append(Ball(nearest.ids[0], nearest.distances[0]))
    return balls
