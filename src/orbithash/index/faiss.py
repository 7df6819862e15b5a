"""FAISS: a flat binary index, and two approximate ones as an explicit choice."""

import logging
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int64, UInt8

from orbithash.errors import MissingExtraError
from orbithash.index.base import IndexStats, Neighbours
from orbithash.index.code_table import CodeTable
from orbithash.index.memory import DerivedIndex, nearest_of

logger = logging.getLogger(__name__)

SAMPLE = 200  # stored codes that recall is measured with
NEIGHBOURS = 10  # of each
BEYOND = np.iinfo(np.int64).max  # farther than any code


class FaissIndex(DerivedIndex):
    """FAISS's flat binary index: compares the query with every code; ties in the order of ids."""

    name: ClassVar[str] = "faiss"

    def __init__(self, n_bits: int) -> None:
        super().__init__(n_bits)
        self._faiss = import_faiss()

    def nearest(
        self, table: CodeTable, codes: UInt8[np.ndarray, "queries bytes"], k: int
    ) -> Neighbours:
        """The k nearest of all items, ties cut in the order of ids."""
        if k == 0 or len(codes) == 0:
            return nearest_of(table, codes, k)
        engine = self.built(table)
        # FAISS cuts ties as it pleases: one more shows whether there was one at the cut.
        found = engine.search(codes, min(k + 1, len(table)))
        distances, positions = in_order(found[0].astype(np.int64), found[1])
        if distances.shape[1] > k:
            cut = np.flatnonzero(distances[:, k] == distances[:, k - 1])
            distances, positions = distances[:, :k], positions[:, :k]
            for query in cut:
                last = distances[query, -1]
                tied = all_at(engine, codes[query : query + 1], int(last))
                nearer = int(np.count_nonzero(distances[query] < last))
                positions[query, nearer:] = tied[: k - nearer]
        return Neighbours(ids=table.ids[positions], distances=distances)

    def build(self, table: CodeTable) -> Any:
        # FAISS numbers codes by position, so that its numbers are in the order of ids.
        return self.made_of(table.codes())

    def made_of(self, codes: UInt8[np.ndarray, "n bytes"]) -> Any:
        """FAISS's own index of some codes."""
        engine = self._faiss.IndexBinaryFlat(8 * codes.shape[1])
        engine.add(codes)
        return engine


@dataclass(frozen=True, eq=False)
class Measured:
    """An approximate index of FAISS, and how much of the k nearest it finds."""

    engine: Any
    recall: float
    k: int


class ApproximateFaissIndex(FaissIndex):
    """Looks at a part of the codes only; how much it finds is measured when it is built."""

    def nearest(
        self, table: CodeTable, codes: UInt8[np.ndarray, "queries bytes"], k: int
    ) -> Neighbours:
        """About the k nearest; where fewer are found, ids and distances end in -1."""
        if k == 0 or len(codes) == 0:
            return nearest_of(table, codes, k)
        return found_by(table, self.built(table).engine, codes, k)

    def build(self, table: CodeTable) -> Measured:
        measured = measure(table, super().build(table))
        logger.info(
            "%s of %d codes: recall@%d is %.3f, measured with %d of them",
            *(self.name, len(table), measured.k, measured.recall, min(SAMPLE, len(table))),
        )
        return measured

    def stats(self) -> IndexStats:
        stats, measured = super().stats(), self.built_already()
        if measured is None:
            return stats
        return replace(stats, recall=measured.recall, recall_at=measured.k)


class FaissInvertedIndex(ApproximateFaissIndex):
    """FAISS's inverted lists: compares with the codes of the nearest clusters; approximate."""

    name = "faiss-ivf"

    def made_of(self, codes: UInt8[np.ndarray, "n bytes"]) -> Any:
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

    def made_of(self, codes: UInt8[np.ndarray, "n bytes"]) -> Any:
        engine = self._faiss.IndexBinaryHNSW(8 * codes.shape[1], 32)
        engine.hnsw.efConstruction = 200
        engine.hnsw.efSearch = 128
        engine.add(codes)
        return engine


def measure(table: CodeTable, engine: Any) -> Measured:
    """The recall by distance: of what exact search finds for some of the codes, how much."""
    n, k = min(SAMPLE, len(table)), min(NEIGHBOURS, len(table))
    sample = np.random.default_rng(0).choice(len(table), n, replace=False)
    codes = table.codes(np.sort(sample))
    found, exact = found_by(table, engine, codes, k), nearest_of(table, codes, k)
    near = (found.distances >= 0) & (found.distances <= exact.distances[:, -1:])
    return Measured(engine, float(near.mean()), k)


def found_by(
    table: CodeTable, engine: Any, codes: UInt8[np.ndarray, "queries bytes"], k: int
) -> Neighbours:
    """What an approximate index finds; where that is fewer than k, ids and distances end in -1."""
    found = engine.search(codes, min(k, len(table)))
    # What was not found has position -1; its distance is the largest there is in the lists, and
    # the least in the graph.
    distances = np.where(found[1] < 0, BEYOND, found[0].astype(np.int64))
    distances, positions = in_order(distances, found[1])
    there = positions >= 0
    ids = np.where(there, table.ids[positions], -1)
    return Neighbours(ids=ids, distances=np.where(there, distances, -1))


def all_at(
    engine: Any, code: UInt8[np.ndarray, "1 bytes"], distance: int
) -> Int64[np.ndarray, " n"]:
    """The positions of all codes at a distance, in ascending order."""
    _, distances, positions = engine.range_search(code, distance + 1)
    return np.sort(positions[distances == distance])


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
