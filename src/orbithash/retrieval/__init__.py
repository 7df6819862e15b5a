"""An index and its encoder: index images, search by image."""

from orbithash.retrieval.duplicates import across_sources, encode_in_memory, split_rows
from orbithash.retrieval.indexing import IndexReport, index_source
from orbithash.retrieval.query import Hit, Query, Result, find, nearest_distance
from orbithash.retrieval.search_index import SearchIndex, open_index

__all__ = [
    "Hit",
    "IndexReport",
    "Query",
    "Result",
    "SearchIndex",
    "across_sources",
    "encode_in_memory",
    "find",
    "index_source",
    "nearest_distance",
    "open_index",
    "split_rows",
]
