import logging

import numpy as np
import pytest

from orbithash.index import ENGINES
from orbithash.kernels.plain_search import nearest_reference

pytest.importorskip("faiss")


@pytest.mark.parametrize("name", ["faiss-ivf", "faiss-hnsw"])
def test_an_approximate_index_logs_its_recall_when_it_is_built(name, caplog):
    codes, queries = clustered_codes(3000, seed=0), clustered_codes(50, seed=1)
    index = ENGINES[name](64)
    index.add(np.arange(3000), codes)
    with caplog.at_level(logging.INFO, logger="orbithash.index.faiss"):
        found = index.search(queries, k=10)
        index.search(queries, k=10)
    assert len(caplog.messages) == 1
    recall, asymmetric = index.stats().recall, index.stats().recall_asymmetric
    message = f"recall@10 is {recall:.3f}, and {asymmetric:.3f} for embeddings"
    assert f"{name} of 3000 codes: {message}" in caplog.text
    assert recall >= 0.9
    assert asymmetric >= 0.9
    distances, _ = nearest_reference(queries, codes, 10)
    assert np.mean((found.distances >= 0) & (found.distances <= distances[:, -1:])) >= 0.9


def test_items_that_the_graph_misses_come_last():
    # With this many equal codes, the graph search ends before it has visited all of them.
    codes = np.repeat(clustered_codes(20, seed=0), 15, axis=0)
    index = ENGINES["faiss-hnsw"](64)
    index.add(np.arange(300), codes)
    found = index.search(codes[:1], k=300)
    n_found = int(np.count_nonzero(found.distances >= 0))
    assert 0 < n_found < 300
    assert np.all(found.ids[0, :n_found] >= 0)
    assert np.all(found.ids[0, n_found:] == -1)
    assert np.all(found.distances[0, n_found:] == -1)


def test_recall_is_of_the_current_codes_and_of_at_most_as_many_neighbours():
    index = ENGINES["faiss-hnsw"](64)
    codes = clustered_codes(7, seed=0)
    index.add(np.arange(4), codes[:4])
    index.search(codes, k=2)
    assert index.stats().recall_at == 4
    index.add(np.arange(4, 7), codes[4:])
    assert index.stats().recall is None
    index.search(codes, k=2)
    assert index.stats().recall_at == 7


def test_a_flat_index_has_no_recall_to_measure():
    index = ENGINES["faiss"](64)
    index.add(np.arange(100), clustered_codes(100, seed=0))
    assert index.stats().recall is None


def clustered_codes(n, seed):
    centres = np.random.default_rng(0).random((40, 64)) < 0.5
    rng = np.random.default_rng(seed + 1)
    return np.packbits(centres[rng.integers(0, 40, n)] ^ (rng.random((n, 64)) < 0.1), axis=1)
