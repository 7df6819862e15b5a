"""Search by Hamming distance."""

from orbithash.index.addresses import (
    ENGINES,
    add_under_new_ids,
    create_index,
    index_exists,
    open_index,
)
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
from orbithash.index.memory import ExactIndex

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
    "add_under_new_ids",
    "create_index",
    "index_exists",
    "open_index",
]
