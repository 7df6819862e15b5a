"""An index and its encoder: index images, search by image."""

from orbithash.retrieval.indexing import IndexReport, index_source
from orbithash.retrieval.query import Answer, Hit, answers
from orbithash.retrieval.search_index import index_of_run

__all__ = ["Answer", "Hit", "IndexReport", "answers", "index_of_run", "index_source"]
