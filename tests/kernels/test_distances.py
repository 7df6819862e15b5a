import numpy as np
from numpy.testing import assert_allclose

from orbithash.kernels.distances import squared_distances


def test_distances_equal_the_summed_squares():
    rng = np.random.default_rng(0)
    for n, m, bits in ((1, 1, 4), (3, 1025, 64), (7, 2049, 5)):
        rows, columns = rng.random((n, bits)), rng.random((m, bits))
        expected = ((rows[:, None] - columns[None]) ** 2).sum(axis=2)
        assert_allclose(squared_distances(rows, columns), expected)


def test_equal_embeddings_are_at_distance_zero_wherever_they_stand():
    rows = np.tile(np.random.default_rng(0).random((1, 33), dtype=np.float32), (1500, 1))
    assert (squared_distances(rows, rows) == 0).all()
