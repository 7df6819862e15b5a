import numpy as np

from orbithash.hashers.anchors import fit_anchor_kernel


def test_similarities_are_gaussians_of_the_distance_to_each_anchor():
    rng = np.random.RandomState(0)
    X = rng.standard_normal((30, 4))
    kernel = fit_anchor_kernel(X, 7, rng)
    squared = [[((a - b) ** 2).sum() for b in kernel.anchors] for a in kernel.anchors]
    expected = [
        [np.exp(-((x - a) ** 2).sum() / (2 * np.mean(squared))) for a in kernel.anchors] for x in X
    ]
    np.testing.assert_allclose(kernel(X), expected)


def test_anchors_are_distinct_rows_and_all_rows_if_there_are_few():
    X = np.random.default_rng(0).standard_normal((5, 3))
    kernel = fit_anchor_kernel(X, 100, np.random.RandomState(0))
    assert {tuple(anchor) for anchor in kernel.anchors} == {tuple(row) for row in X}
