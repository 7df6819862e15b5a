import numpy as np
from scipy.optimize import check_grad

from orbithash.hashers import KernelSupervisedHashing
from orbithash.hashers.kernel_supervised import (
    fit_anchor_kernel,
    smooth_objective,
    spectral_weights,
)


def test_each_bit_brings_the_inner_products_closer_to_their_targets():
    X, y = rings()
    hasher = KernelSupervisedHashing(n_bits=8, random_state=0).fit(X, y)
    assert (np.diff(hasher.objective_) < 0).all()
    codes = 2.0 * hasher.transform(X) - 1
    targets = np.where(y[:, None] == y, 8, -8)
    np.testing.assert_allclose(((targets - codes @ codes.T) ** 2).mean(), hasher.objective_[-1])


def test_spectral_weights_maximise_the_objective():
    K, residual = random_problem()

    def value(weights):
        projections = K @ weights
        projections *= np.sqrt(len(K)) / np.linalg.norm(projections)
        return projections @ residual @ projections

    rng = np.random.default_rng(1)
    best = spectral_weights(K, residual)
    assert all(value(best) >= value(rng.standard_normal(5)) for _ in range(200))
    assert all(value(best) >= value(best + 0.01 * rng.standard_normal(5)) for _ in range(200))


def test_gradient_of_the_smooth_objective_equals_finite_differences():
    problem = random_problem()
    error = check_grad(
        lambda weights: smooth_objective(weights, *problem)[0],
        lambda weights: smooth_objective(weights, *problem)[1],
        np.linspace(-1, 1, 5),
    )
    assert error < 1e-4


def test_linearly_inseparable_classes_are_learned():
    X, y = rings()
    bits = KernelSupervisedHashing(n_bits=8, random_state=0).fit(X, y).transform(X)
    distances = (bits[:, None] != bits).mean(axis=2)
    similar = y[:, None] == y
    assert distances[similar].mean() < 0.2 * distances[~similar].mean()


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


def random_problem():
    rng = np.random.default_rng(0)
    residual = rng.standard_normal((20, 20))
    return rng.standard_normal((20, 5)), residual + residual.T


def rings():
    """Two classes on a sphere: near either pole, and near the equator."""
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    height = np.where(y, 0.9, 0.1) * rng.choice([-1, 1], 200)
    angle = rng.random(200) * 2 * np.pi
    width = np.sqrt(1 - height**2)
    return np.stack([width * np.cos(angle), width * np.sin(angle), height], axis=1), y
