"""Exact search: compares the query with every stored code."""

from orbithash.index.memory import MemoryIndex


class ExactIndex(MemoryIndex):
    """Compares the query with every code, on all cores; needs nothing but numpy and numba."""

    name = "exact"
