"""Search by Hamming distance."""

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
from orbithash.index.engines import ENGINES
from orbithash.index.exact import ExactIndex

__all__ = [
    "ENGINES",
    "Ball",
    "ExactIndex",
    "Index",
    "IndexStats",
    "Items",
    "Metadata",
    "Neighbours",
    "SearchEngine",
    "Where",
    "create_index",
    "index_exists",
    "open_index",
]
