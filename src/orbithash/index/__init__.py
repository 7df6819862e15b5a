"""Search by Hamming distance: engines in memory, indexes on disk and in Milvus."""

from orbithash.index.addresses import create_index, index_exists, open_index
from orbithash.index.base import (
    Ball,
    Index,
    IndexStats,
    Items,
    Metadata,
    Neighbours,
    SearchEngine,
    Where,
)
from orbithash.index.checks import add_under_new_ids
from orbithash.index.duplicates import DuplicateGroup, DuplicateGroups
from orbithash.index.faiss import FaissGraphIndex, FaissIndex, FaissInvertedIndex
from orbithash.index.memory import ExactIndex, MemoryIndex, MultiIndex
from orbithash.index.milvus.milvus_index import MilvusIndex, MilvusInvertedIndex

ENGINES: dict[str, type[MemoryIndex] | type[MilvusIndex]] = {
    "exact": ExactIndex,
    "exact-mih": MultiIndex,
    "faiss": FaissIndex,
    "faiss-ivf": FaissInvertedIndex,
    "faiss-hnsw": FaissGraphIndex,
    "milvus": MilvusIndex,
    "milvus-ivf": MilvusInvertedIndex,
}

__all__ = [
    "ENGINES",
    "Ball",
    "DuplicateGroup",
    "DuplicateGroups",
    "ExactIndex",
    "Index",
    "IndexStats",
    "Items",
    "Metadata",
    "Neighbours",
    "SearchEngine",
    "Where",
    "add_under_new_ids",
    "create_index",
    "index_exists",
    "open_index",
]
