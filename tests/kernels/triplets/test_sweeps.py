import itertools

import numpy as np
import pytest

from orbithash.kernels.triplets.sweeps import sweep_pairs, sweeping_pays


@pytest.mark.parametrize("gamma", [1, 2])
@pytest.mark.parametrize(("n_positives", "n_negatives"), [(1, 1), (1, 9), (9, 1), (13, 20)])
def test_sweeps_equal_the_loop_over_all_pairs(n_positives, n_negatives, gamma):
    rng = np.random.default_rng(0)
    # Tenths: many pairs are exactly at the threshold.
    thresholds, distances = (rng.integers(0, 30, n) / 10 for n in (n_positives, n_negatives))
    n_before = np.sort(rng.integers(0, n_positives + 1, n_negatives))
    (b, e), (a, f) = terms = rng.random((2, n_positives)), rng.random((2, n_negatives))
    factors = rng.random(n_negatives)
    loss, active, gradients = 0.0, 0, (np.zeros(n_positives), np.zeros(n_negatives))
    for j, k in itertools.product(range(n_positives), range(n_negatives)):
        hinge = max(0.0, thresholds[j] - distances[k])
        weight = e[j] * factors[k] + f[k] if n_before[k] > j else b[j] * factors[k] + a[k]
        if hinge > 0:
            loss, active = loss + weight * hinge**gamma, active + 1
            gradients[0][j] += weight * hinge ** (gamma - 1)
            gradients[1][k] -= weight * hinge ** (gamma - 1)
    orders = np.argsort(thresholds, kind="stable"), np.argsort(distances, kind="stable")
    by_sweeps = sweep_pairs(
        thresholds, orders[0], distances, orders[1], n_before, *terms, factors, gamma == 2
    )
    assert by_sweeps[1] == active
    np.testing.assert_allclose(by_sweeps[0], loss, rtol=1e-12)
    for ours, literal in zip(by_sweeps[2:], gradients, strict=True):
        np.testing.assert_allclose(ours, literal, rtol=0, atol=1e-12)


def test_sweeps_are_for_long_lists_with_many_positives():
    assert sweeping_pays(1600, 14_400)
    assert not sweeping_pays(20, 16_000)
    assert not sweeping_pays(50, 50)
    assert not sweeping_pays(0, 100)
