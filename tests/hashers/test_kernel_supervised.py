import numpy as np
from scipy.optimize import check_grad

from orbithash.hashers import KernelSupervisedHashing
from orbithash.hashers.kernel_supervised import smooth_misfit, spectral_weights


def test_each_bit_brings_the_inner_products_nearer_to_who_is_similar():
    X, y = rings()
    hasher = KernelSupervisedHashing(n_bits=8, random_state=0).fit(X, y)
    assert (np.diff(hasher.objective_) < 0).all()
    codes = 2.0 * hasher.transform(X) - 1
    wanted = np.where(y[:, None] == y, 8, -8)
    np.testing.assert_allclose(((wanted - codes @ codes.T) ** 2).mean(), hasher.objective_[-1])


def test_spectral_weights_are_the_best_of_their_length():
    K, residue = random_problem()

    def value(weights):
        projections = K @ weights
        projections *= np.sqrt(len(K)) / np.linalg.norm(projections)
        return projections @ residue @ projections

    rng = np.random.default_rng(1)
    best = spectral_weights(K, residue)
    assert all(value(best) >= value(rng.standard_normal(5)) for _ in range(200))
    assert all(value(best) >= value(best + 0.01 * rng.standard_normal(5)) for _ in range(200))


def test_gradient_of_the_smooth_misfit_is_its_slope():
    problem = random_problem()
    error = check_grad(
        lambda weights: smooth_misfit(weights, *problem)[0],
        lambda weights: smooth_misfit(weights, *problem)[1],
        np.linspace(-1, 1, 5),
    )
    assert error < 1e-4


def test_classes_that_no_hyperplane_separates_are_learned():
    X, y = rings()
    bits = KernelSupervisedHashing(n_bits=8, random_state=0).fit(X, y).transform(X)
    distances = (bits[:, None] != bits).mean(axis=2)
    similar = y[:, None] == y
    assert distances[similar].mean() < 0.2 * distances[~similar].mean()


def random_problem():
    rng = np.random.default_rng(0)
    residue = rng.standard_normal((20, 20))
    return rng.standard_normal((20, 5)), residue + residue.T


def rings():
    """Two classes on one sphere: near a pole, either of the two, and near the equator."""
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    height = np.where(y, 0.9, 0.1) * rng.choice([-1, 1], 200)
    angle = rng.random(200) * 2 * np.pi
    width = np.sqrt(1 - height**2)
    return np.stack([width * np.cos(angle), width * np.sin(angle), height], axis=1), y
