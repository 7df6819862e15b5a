import numpy as np
from numpy.testing import assert_allclose

from orbithash.kernels.distances import squared_distances


def test_distances_equal_sums_of_squared_differences():
    rng = np.random.default_rng(0)
    for n, m, bits in ((1, 1, 4), (3, 1025, 64), (7, 2049, 5)):
        left, right = rng.random((n, bits)), rng.random((m, bits))
        expected = ((left[:, None] - right[None]) ** 2).sum(axis=2)
        assert_allclose(squared_distances(left, right), expected)


def test_equal_embeddings_are_at_distance_zero_at_any_position():
    embeddings = np.tile(np.random.default_rng(0).random((1, 33), dtype=np.float32), (1500, 1))
    assert (squared_distances(embeddings, embeddings) == 0).all()
