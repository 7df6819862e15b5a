"""Search by Hamming distance."""

from orbithash.index.base import Neighbours, SearchEngine
from orbithash.index.exact import ExactIndex

__all__ = ["ENGINES", "ExactIndex", "Neighbours", "SearchEngine"]

ENGINES = {"exact": ExactIndex}
