"""FAISS: a flat binary index, and two approximate ones that the user must choose explicitly."""

import logging
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int64, UInt8

from orbithash.codes import unpack
from orbithash.errors import MissingExtraError
from orbithash.index.base import IndexStats, Neighbours
from orbithash.index.candidates import as_neighbours, nearest_candidates
from orbithash.index.code_table import CodeTable
from orbithash.index.memory import DerivedIndex, TableSearcher

logger = logging.getLogger(__name__)

RECALL_QUERIES = 200  # stored codes that recall is measured with
RECALL_AT = 10  # neighbours of each
OVERSAMPLING, MIN_FETCHED = 10, 100  # Hamming neighbours of an embedding: for each of k; at least
FARTHEST = np.iinfo(np.int64).max  # distance of an item that was not found


class FaissIndex(DerivedIndex):
    """FAISS's flat binary index: compares the query with every code; ties in the order of ids."""

    name: ClassVar[str] = "faiss"

    def __init__(self, n_bits: int) -> None:
        super().__init__(n_bits)
        self._faiss = import_faiss()

    def build(self, table: CodeTable) -> "FlatSearcher":
        codes = table.codes()
        engine = self._faiss.IndexBinaryFlat(8 * codes.shape[1])
        engine.add(codes)
        return FlatSearcher(table, engine)


class ApproximateFaissIndex(DerivedIndex):
    """An index of FAISS that compares only some of the codes; measures its recall when built."""

    def __init__(self, n_bits: int) -> None:
        super().__init__(n_bits)
        self._faiss = import_faiss()

    def build(self, table: CodeTable) -> "ApproximateSearcher":
        searcher = ApproximateSearcher(table, self.faiss_index(table.codes()))
        recalls = measure_recalls(searcher)
        logger.info(
            "%s of %d codes: recall@%d is %.3f, and %.3f for embeddings, measured with %d of them",
            *(self.name, len(table), recalls["recall_at"], recalls["recall"]),
            *(recalls["recall_asymmetric"], min(RECALL_QUERIES, len(table))),
        )
        return replace(searcher, recalls=recalls)

    @abstractmethod
    def faiss_index(self, codes: UInt8[np.ndarray, "n bytes"]) -> Any:
        """Build FAISS's index of codes."""

    def stats(self) -> IndexStats:
        stats, built = super().stats(), self._built
        if built is None or self._built_from is not self.table:
            return stats
        return replace(stats, **built.recalls)


class FaissInvertedIndex(ApproximateFaissIndex):
    """FAISS's inverted lists: compares with the codes of the nearest clusters; approximate."""

    name = "faiss-ivf"

    def faiss_index(self, codes: UInt8[np.ndarray, "n bytes"]) -> Any:
        n_lists = max(1, int(np.sqrt(len(codes))))
        engine = self._faiss.IndexBinaryIVF(
            self._faiss.IndexBinaryFlat(8 * codes.shape[1]), 8 * codes.shape[1], n_lists
        )
        engine.cp.min_points_per_centroid = 1  # no warning about small collections
        engine.nprobe = min(n_lists, max(8, n_lists // 8))
        engine.train(codes)
        engine.add(codes)
        return engine


class FaissGraphIndex(ApproximateFaissIndex):
    """FAISS's graph of near neighbours (HNSW); approximate."""

    name = "faiss-hnsw"

    def faiss_index(self, codes: UInt8[np.ndarray, "n bytes"]) -> Any:
        engine = self._faiss.IndexBinaryHNSW(8 * codes.shape[1], 32)
        engine.hnsw.efConstruction = 200
        engine.hnsw.efSearch = 128
        engine.add(codes)
        return engine


@dataclass(frozen=True, eq=False)
class FlatSearcher(TableSearcher):
    """A table of codes in FAISS's flat index.

    FAISS numbers codes by position in the table, so its numbers are in the order of ids.
    """

    engine: Any

    def nearest(self, codes: UInt8[np.ndarray, "queries bytes"], k: int) -> Neighbours:
        k = min(k, len(self.table))
        if k == 0 or len(codes) == 0:
            return self.table.nearest(codes, k)
        # FAISS cuts ties in any order: one more neighbour shows whether there is a tie at the cut.
        found = self.engine.search(codes, min(k + 1, len(self.table)))
        distances, positions = sort_neighbours(found[0].astype(np.int64), found[1])
        if distances.shape[1] > k:
            tied_queries = np.flatnonzero(distances[:, k] == distances[:, k - 1])
            distances, positions = distances[:, :k], positions[:, :k]
            for query in tied_queries:
                last = distances[query, -1]
                tied = self._positions_at(codes[query : query + 1], int(last))
                n_nearer = int(np.count_nonzero(distances[query] < last))
                positions[query, n_nearer:] = tied[: k - n_nearer]
        return Neighbours(ids=self.table.ids[positions], distances=distances)

    def _positions_at(
        self, code: UInt8[np.ndarray, "1 bytes"], distance: int
    ) -> Int64[np.ndarray, " n"]:
        """Return the positions of all codes at a distance, in ascending order."""
        _, distances, positions = self.engine.range_search(code, distance + 1)
        return np.sort(positions[distances == distance])


@dataclass(frozen=True, eq=False)
class ApproximateSearcher(TableSearcher):
    """A table of codes in an approximate index of FAISS, and its recalls once measured."""

    engine: Any
    recalls: dict[str, Any] = field(default_factory=dict)  # fields of IndexStats

    def nearest(self, codes: UInt8[np.ndarray, "queries bytes"], k: int) -> Neighbours:
        """Return about the k nearest; where fewer are found, ids and distances end in -1."""
        k = min(k, len(self.table))
        if k == 0 or len(codes) == 0:
            return self.table.nearest(codes, k)
        distances, positions = self._neighbours(codes, k)
        is_found = positions >= 0
        ids = np.where(is_found, self.table.ids[positions], -1)
        return Neighbours(ids=ids, distances=np.where(is_found, distances, -1))

    def nearest_asymmetric(
        self, embeddings: Float[np.ndarray, "queries bits"], k: int
    ) -> Neighbours:
        """Return about the k nearest, among ten times as many Hamming neighbours."""
        k = min(k, len(self.table))
        if k == 0 or len(embeddings) == 0:
            return self.table.nearest_asymmetric(embeddings, k)

        def fetch(codes: UInt8[np.ndarray, "n bytes"], n: int) -> Iterator[CodeTable]:
            for positions in self._neighbours(codes, n)[1]:
                yield self.table.subset(np.sort(positions[positions >= 0]))

        n = min(max(OVERSAMPLING * k, MIN_FETCHED), len(self.table))
        found, _ = nearest_candidates(embeddings, k, fetch, first=n, most=n)
        return as_neighbours(found, np.float64)

    def _neighbours(
        self, codes: UInt8[np.ndarray, "n bytes"], k: int
    ) -> tuple[Int64[np.ndarray, "n k"], Int64[np.ndarray, "n k"]]:
        """Return distances and positions of about the k nearest; -1 where none is found."""
        found = self.engine.search(codes, k)
        # Missing items have position -1. Their distance is the largest possible in inverted lists
        # and the smallest in a graph.
        distances = np.where(found[1] < 0, FARTHEST, found[0].astype(np.int64))
        return sort_neighbours(distances, found[1])


def measure_recalls(searcher: ApproximateSearcher) -> dict[str, Any]:
    """Return recall@k by distance, with some of the stored codes as queries, and k.

    As an embedding, a code has values that are a random distance, up to 0.5, from its bits.
    """
    table = searcher.table
    n, k = min(RECALL_QUERIES, len(table)), min(RECALL_AT, len(table))
    rng = np.random.default_rng(0)
    codes = table.codes(np.sort(rng.choice(len(table), n, replace=False)))
    embeddings = np.abs(unpack(codes, table.n_bits) - 0.5 * rng.random((n, table.n_bits)))
    return {
        "recall_at": k,
        "recall": recall(searcher.nearest(codes, k), table.nearest(codes, k)),
        "recall_asymmetric": recall(
            searcher.nearest_asymmetric(embeddings, k), table.nearest_asymmetric(embeddings, k)
        ),
    }


def recall(found: Neighbours, exact: Neighbours) -> float:
    """Return the fraction of results that are as near as the k nearest."""
    return float(np.mean((found.distances >= 0) & (found.distances <= exact.distances[:, -1:])))


def sort_neighbours(
    distances: Int64[np.ndarray, "queries k"], positions: Int64[np.ndarray, "queries k"]
) -> tuple[Int64[np.ndarray, "queries k"], Int64[np.ndarray, "queries k"]]:
    """Sort each query's neighbours by distance, then by position."""
    order = np.lexsort((positions, distances))
    return np.take_along_axis(distances, order, 1), np.take_along_axis(positions, order, 1)


def import_faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise MissingExtraError("faiss") from None
    return faiss
