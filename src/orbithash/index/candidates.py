"""Asymmetric search by engines that find only Hamming neighbours: fetch more of them, and re-order.

A code that differs from an embedding's own code in n bits is at least as far as the n smallest bit
weights add up to. So the Hamming neighbours that were fetched hold the k nearest by asymmetric
distance as soon as that bound, of the farthest of them, exceeds the k-th asymmetric distance.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from jaxtyping import Float, Float64, UInt8

from orbithash.codes import GRID, binarize, bit_weights, pack
from orbithash.index.base import Neighbours
from orbithash.index.code_table import CodeTable
from orbithash.kernels.plain_search import hamming_distances_reference

# Returns a table of about n nearest codes by Hamming distance for each code.
Fetch = Callable[[UInt8[np.ndarray, "queries bytes"], int], Iterable[CodeTable]]
Row = tuple[np.ndarray, np.ndarray]  # ids and distances of one query


def nearest_candidates(
    embeddings: Float[np.ndarray, "queries bits"], k: int, fetch: Fetch, *, first: int, most: int
) -> tuple[list[Row], int]:
    """Return the k nearest items of each embedding, and the number of queries not proven exact.

    `first` Hamming neighbours are fetched, and more until the result is exact, at most `most`.
    """
    codes, bounds = pack(binarize(embeddings)), distance_bounds(embeddings)
    found: list[Row] = [(np.empty(0), np.empty(0))] * len(embeddings)
    pending, n = np.arange(len(embeddings)), min(first, most)
    while True:
        unproven = []
        for query, table in zip(pending, fetch(codes[pending], n), strict=True):
            nearest = table.nearest_asymmetric(embeddings[query : query + 1], k)
            found[query] = nearest.ids[0], nearest.distances[0]
            if len(table) < n:
                continue  # these are all items
            own = codes[query : query + 1]
            farthest = int(hamming_distances_reference(own, table.codes()).max())
            # At an equal distance, an item that was not fetched could have a lower id.
            if bounds[query, farthest] <= nearest.distances[0, -1]:
                unproven.append(query)
        if not unproven or n == most:
            return found, len(unproven)
        pending, n = np.array(unproven), min(4 * n, most)


def distance_bounds(
    embeddings: Float[np.ndarray, "queries bits"],
) -> Float64[np.ndarray, "queries distances"]:
    """Return the least asymmetric distance of codes at each Hamming distance, from 0 bits to all.

    >>> distance_bounds(np.array([[1.0, 0.75, 0.5, 0.0]]))
    array([[0.75, 0.75, 1.25, 2.25, 3.25]])
    """
    weights, least = bit_weights(embeddings)
    sums = np.cumsum(np.sort(weights, axis=1), axis=1)
    return np.asarray((least[:, None] + np.pad(sums, ((0, 0), (1, 0)))) / GRID)


def as_neighbours(rows: Sequence[Row], dtype: type[np.int64 | np.float64]) -> Neighbours:
    """Return the results of one or more queries; shorter rows end in id -1 and distance -1."""
    shape = len(rows), max(len(ids) for ids, _ in rows)
    ids, distances = np.full(shape, -1, dtype=np.int64), np.full(shape, -1, dtype=dtype)
    for query, row in enumerate(rows):
        n = len(row[0])
        ids[query, :n], distances[query, :n] = row
    return Neighbours(ids=ids, distances=distances)
