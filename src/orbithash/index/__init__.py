"""Search by Hamming distance."""

from orbithash.index.base import (
    Ball,
    IndexStats,
    Items,
    Metadata,
    Neighbours,
    SearchEngine,
    Where,
)
from orbithash.index.exact import ExactIndex
from orbithash.index.faiss import FaissGraphIndex, FaissIndex, FaissInvertedIndex

__all__ = [
    "ENGINES",
    "Ball",
    "ExactIndex",
    "IndexStats",
    "Items",
    "Metadata",
    "Neighbours",
    "SearchEngine",
    "Where",
]

ENGINES = {
    "exact": ExactIndex,
    "faiss": FaissIndex,
    "faiss-ivf": FaissInvertedIndex,
    "faiss-hnsw": FaissGraphIndex,
}
