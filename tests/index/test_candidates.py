"""Asymmetric neighbours from Hamming neighbours: proven exact, or counted as not proven."""

import numpy as np
import pytest

from orbithash.codes import asymmetric_distances
from orbithash.index.candidates import nearest_candidates
from orbithash.index.code_table import empty_table

N_BITS, N = 24, 500
IDS = np.arange(N) * 3 - 700
CODES = np.packbits(np.random.default_rng(0).random((N, N_BITS)) < 0.3, axis=1)
TABLE = empty_table(N_BITS).with_items(IDS, CODES)


class HammingNeighbours:
    """Fetches the nearest codes by Hamming distance; at an equal distance, the highest ids."""

    def __init__(self):
        self.fetched = []

    def __call__(self, codes, n):
        self.fetched.append((len(codes), n))
        for code in codes:
            distances = np.bitwise_count(CODES ^ code).sum(axis=1)
            yield TABLE.subset(np.sort(np.lexsort((-IDS, distances))[:n]))


def embeddings(*, spread, n=6):
    """Return embeddings near stored codes: the larger the spread, the nearer to 0 and 1."""
    rng = np.random.default_rng(1)
    bits = np.unpackbits(CODES[rng.integers(0, N, n)], axis=1)[:, :N_BITS]
    return 1 / (1 + np.exp(-spread * (2 * bits - 1.0) * rng.random((n, N_BITS))))


@pytest.mark.parametrize("k", [1, 7, 100])
@pytest.mark.parametrize("spread", [0, 1, 20])
def test_neighbours_are_fetched_until_the_result_is_exact(k, spread):
    fetch, queries = HammingNeighbours(), np.round(embeddings(spread=spread) * 8) / 8
    found, n_unproven = nearest_candidates(queries, k, fetch, first=k, most=10 * N)
    assert n_unproven == 0
    distances = asymmetric_distances(queries, CODES)
    for query, (ids, near) in enumerate(found):
        order = np.lexsort((IDS, distances[query]))[:k]
        np.testing.assert_array_equal(ids, IDS[order])
        np.testing.assert_array_equal(near, distances[query, order])


def test_only_queries_that_are_not_proven_fetch_more():
    fetch = HammingNeighbours()
    queries = np.concatenate([embeddings(spread=500, n=4), embeddings(spread=0, n=2)])
    nearest_candidates(queries, 1, fetch, first=20, most=320)
    assert fetch.fetched == [(6, 20), (2, 80), (2, 320)]


def test_queries_that_cannot_be_proven_are_counted():
    found, n_unproven = nearest_candidates(
        embeddings(spread=0), 5, HammingNeighbours(), first=5, most=50
    )
    assert n_unproven == 6
    assert [len(ids) for ids, _ in found] == [5] * 6
