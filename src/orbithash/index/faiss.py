"""FAISS: a flat binary index, and two approximate ones as an explicit choice."""

import logging
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int64, UInt8

from orbithash.errors import MissingExtraError
from orbithash.index.base import IndexStats, Neighbours
from orbithash.index.code_table import CodeTable
from orbithash.index.memory import MemoryIndex, nearest_of

logger = logging.getLogger(__name__)

SAMPLE = 200  # stored codes that recall is measured with
NEIGHBOURS = 10  # of each


class FaissIndex(MemoryIndex):
    """FAISS's flat binary index: compares the query with every code; ties in the order of ids."""

    name: ClassVar[str] = "faiss"

    def __init__(self, n_bits: int) -> None:
        super().__init__(n_bits)
        self._faiss = import_faiss()
        self._engine: Any = None  # made of the table when it is first searched

    def replace_table(self, table: CodeTable) -> None:
        """Search these codes from now on."""
        super().replace_table(table)
        self._engine = None

    def nearest(self, codes: UInt8[np.ndarray, "queries bytes"], k: int) -> Neighbours:
        """The k nearest of all items, ties cut in the order of ids."""
        if k == 0 or len(codes) == 0:
            return nearest_of(self.table, codes, k)
        engine = self.built()
        # FAISS cuts ties as it pleases: one more shows whether there was one at the cut.
        distances, positions = engine.search(codes, min(k + 1, len(self)))
        found = in_order(distances.astype(np.int64), positions)
        if found[0].shape[1] > k:
            cut = np.flatnonzero(found[0][:, k] == found[0][:, k - 1])
            found = found[0][:, :k], found[1][:, :k]
            for query in cut:
                self._settle_ties(codes[query : query + 1], found[0][query], found[1][query])
        return Neighbours(ids=self.table.ids[found[1]], distances=found[0])

    def built(self) -> Any:
        """FAISS's own index of the codes, numbered by position in the order of ids."""
        if self._engine is None:
            self._engine = self.build(self.table.codes())
        return self._engine

    def build(self, codes: UInt8[np.ndarray, "n bytes"]) -> Any:
        engine = self._faiss.IndexBinaryFlat(8 * codes.shape[1])
        engine.add(codes)
        return engine

    def _settle_ties(
        self,
        code: UInt8[np.ndarray, "1 bytes"],
        distances: Int64[np.ndarray, " k"],
        positions: Int64[np.ndarray, " k"],
    ) -> None:
        """Put the first of all items at the last distance where FAISS put some of them."""
        last = distances[-1]
        _, all_distances, within = self.built().range_search(code, int(last) + 1)
        tied = np.sort(within[all_distances == last])
        nearer = int(np.count_nonzero(distances < last))
        positions[nearer:] = tied[: len(positions) - nearer]


class ApproximateFaissIndex(FaissIndex):
    """Looks at a part of the codes only; how much it finds is measured when it is built."""

    recall: float | None = None

    def nearest(self, codes: UInt8[np.ndarray, "queries bytes"], k: int) -> Neighbours:
        """About the k nearest; where fewer are found, ids and distances end in -1."""
        if k == 0 or len(codes) == 0:
            return nearest_of(self.table, codes, k)
        # What was not found has position -1 and the largest distance there is, so it comes last.
        found = self.built().search(codes, k)
        distances, positions = in_order(found[0].astype(np.int64), found[1])
        there = positions >= 0
        ids = np.where(there, self.table.ids[positions], -1)
        return Neighbours(ids=ids, distances=np.where(there, distances, -1))

    def built(self) -> Any:
        """FAISS's index; building it takes long, so it says how good the result is."""
        if self._engine is None:
            super().built()
            self.recall = self._measured_recall()
            logger.info(
                "%s of %d codes: recall@%d is %.3f, measured with %d of them",
                self.name,
                len(self),
                min(NEIGHBOURS, len(self)),
                self.recall,
                min(SAMPLE, len(self)),
            )
        return self._engine

    def stats(self) -> IndexStats:
        self.built()
        stats = super().stats()
        return IndexStats(**{**vars(stats), "recall": self.recall})

    def _measured_recall(self) -> float:
        """Of what exact search finds, how much is found, by distance."""
        rng = np.random.default_rng(0)
        sample = rng.choice(len(self), min(SAMPLE, len(self)), replace=False)
        codes = self.table.codes(np.sort(sample))
        k = min(NEIGHBOURS, len(self))
        found, exact = self.nearest(codes, k), nearest_of(self.table, codes, k)
        farthest = exact.distances[:, -1:]
        return float(np.mean((found.distances >= 0) & (found.distances <= farthest)))


class FaissInvertedIndex(ApproximateFaissIndex):
    """FAISS's inverted lists: compares with the codes of the nearest clusters; approximate."""

    name = "faiss-ivf"

    def build(self, codes: UInt8[np.ndarray, "n bytes"]) -> Any:
        n_lists = max(1, int(np.sqrt(len(codes))))
        engine = self._faiss.IndexBinaryIVF(
            self._faiss.IndexBinaryFlat(8 * codes.shape[1]), 8 * codes.shape[1], n_lists
        )
        engine.cp.min_points_per_centroid = 1  # small collections are no mistake
        engine.nprobe = min(n_lists, max(8, n_lists // 8))
        engine.train(codes)
        engine.add(codes)
        return engine


class FaissGraphIndex(ApproximateFaissIndex):
    """FAISS's graph of near neighbours (HNSW): walks towards the query; approximate."""

    name = "faiss-hnsw"

    def build(self, codes: UInt8[np.ndarray, "n bytes"]) -> Any:
        engine = self._faiss.IndexBinaryHNSW(8 * codes.shape[1], 32)
        engine.hnsw.efConstruction = 200
        engine.hnsw.efSearch = 128
        engine.add(codes)
        return engine


def in_order(
    distances: Int64[np.ndarray, "queries k"], positions: Int64[np.ndarray, "queries k"]
) -> tuple[Int64[np.ndarray, "queries k"], Int64[np.ndarray, "queries k"]]:
    """By distance, equal distances by position."""
    order = np.lexsort((positions, distances))
    return np.take_along_axis(distances, order, 1), np.take_along_axis(positions, order, 1)


def import_faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise MissingExtraError("faiss") from None
    return faiss
