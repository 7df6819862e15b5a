import itertools
import logging

import numpy as np

from orbithash.hashers import MinimalLossHashing
from orbithash.hashers.minimal_loss import (
    bound_gradient,
    costliest_codes,
    half_whitening,
    hinge_costs,
)


def test_costliest_codes_equal_a_search_over_all_pairs_of_codes():
    rng = np.random.default_rng(0)
    n_bits = 4
    one, other = rng.standard_normal((2, 40, n_bits))
    costs = np.repeat(hinge_costs(n_bits, radius=1.5, dissimilar_weight=0.7), 20, axis=0)
    worst_one, worst_other = costliest_codes(one, other, costs)
    codes = np.array(list(itertools.product([0, 1], repeat=n_bits)))
    for pair in range(40):

        def value(g, h, pair=pair):
            distance = int(np.sum(g != h))
            return costs[pair, distance] + g @ one[pair] + h @ other[pair]

        highest = max(value(g, h) for g in codes for h in codes)
        np.testing.assert_allclose(value(worst_one[pair], worst_other[pair]), highest)


def test_the_bound_is_never_below_the_cost_of_the_codes():
    rng = np.random.default_rng(1)
    one, other = rng.standard_normal((2, 200, 8))
    costs = np.repeat(hinge_costs(8, radius=2.0, dissimilar_weight=1.0), 100, axis=0)
    worst_one, worst_other = costliest_codes(one, other, costs)

    def cost_and_score(g, h):
        return costs[np.arange(200), (g != h).sum(axis=1)], (g * one + h * other).sum(axis=1)

    cost, score = cost_and_score(one > 0, other > 0)
    worst_cost, worst_score = cost_and_score(worst_one, worst_other)
    assert (worst_cost + worst_score - score >= cost - 1e-9).all()


def test_gradient_of_the_bound_equals_finite_differences():
    rng = np.random.default_rng(2)
    W, one, other = (rng.standard_normal(shape) for shape in [(5, 3), (20, 5), (20, 5)])
    costs = np.repeat(hinge_costs(3, radius=1.0, dissimilar_weight=0.5), 10, axis=0)

    def bound(W):
        a, b = one @ W, other @ W
        g, h = costliest_codes(a, b, costs)
        costly = costs[np.arange(20), (g != h).sum(axis=1)] + (g * a + h * b).sum(axis=1)
        return (costly - np.maximum(a, 0).sum(axis=1) - np.maximum(b, 0).sum(axis=1)).mean()

    gradient = bound_gradient(W, one, other, costs)
    step = 1e-6 * rng.standard_normal(W.shape)
    np.testing.assert_allclose(
        bound(W + step) - bound(W - step), 2 * (gradient * step).sum(), rtol=1e-4
    )


def test_half_whitening_takes_the_root_of_the_spread_and_gives_rows_unit_length_on_average():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5000, 3)) * [100, 25, 9]
    X -= X.mean(axis=0)
    whitened = X @ half_whitening(X)
    np.testing.assert_allclose((whitened**2).sum(axis=1).mean(), 1)
    spread = whitened.std(axis=0)
    np.testing.assert_allclose(spread / spread[0], [1, 0.5, 0.3], rtol=0.1)
    assert half_whitening(X[:2]).shape == (3, 2)  # fewer rows than features


def test_fitting_separates_classes_that_random_hyperplanes_do_not():
    X, y = noisy_classes()
    learned = MinimalLossHashing(n_bits=8, n_steps=500, random_state=0).fit(X, y)
    untrained = MinimalLossHashing(n_bits=8, n_steps=0, random_state=0).fit(X, y)
    assert separation(learned.transform(X), y) > 0.4 > separation(untrained.transform(X), y) + 0.2


def test_long_fits_log_their_progress(caplog):
    X, y = noisy_classes()
    with caplog.at_level(logging.INFO, logger="orbithash"):
        MinimalLossHashing(n_bits=4, n_steps=200, batch_size=10, random_state=0).fit(X, y)
    assert "step 100 of 200" in caplog.text


def separation(bits, y):
    """Mean distance between classes minus mean distance within, as a share of the bits."""
    distances = (bits[:, None] != bits).mean(axis=2)
    similar = y[:, None] == y
    return distances[~similar].mean() - distances[similar].mean()


def noisy_classes():
    """Two classes that differ in two of forty features."""
    rng = np.random.default_rng(0)
    y = np.arange(400) % 2
    X = rng.standard_normal((400, 40))
    X[:, :2] = (2 * y - 1)[:, None] + 0.3 * rng.standard_normal((400, 2))
    return X, y
