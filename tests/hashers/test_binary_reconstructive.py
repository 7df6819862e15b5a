import itertools

import numpy as np
import pytest

from orbithash.hashers import BinaryReconstructiveEmbedding
from orbithash.hashers.binary_reconstructive import best_weight, vector_targets


@pytest.mark.parametrize("labelled", [True, False])
def test_every_pass_lowers_the_objective(labelled):
    X, y = clusters()
    hasher = BinaryReconstructiveEmbedding(n_bits=8, n_pairs=20, n_passes=3, random_state=0)
    objective = hasher.fit(X, y if labelled else None).objective_
    assert (np.diff(objective) <= 0).all()
    assert objective[1] < 0.9 * objective[0]


def test_best_weight_equals_a_search_over_all_thresholds():
    rng = np.random.default_rng(0)
    pairs = np.array(list(itertools.combinations(range(12), 2))).T
    for _ in range(20):
        column, others = rng.standard_normal((2, 12))
        column[:2] = 0
        column[3], others[3] = column[4], others[4]  # two rows with the same threshold
        costs = rng.standard_normal(pairs.shape[1])

        def total(weight, column=column, others=others, costs=costs):
            bits = others + weight * column > 0
            return sum(
                cost
                for one, other, cost in zip(*pairs, costs, strict=True)
                if bits[one] != bits[other]
            )

        thresholds = np.sort(-others[2:] / column[2:])
        between = [
            thresholds[0] - 1,
            *(thresholds[1:] + thresholds[:-1]) / 2,
            thresholds[-1] + 1,
        ]
        found = best_weight(0.0, column, others, pairs, costs)
        np.testing.assert_allclose(total(found), min(map(total, between)), atol=1e-12)


def test_an_optimal_weight_is_kept():
    column, others = np.array([1.0, 1.0]), np.array([-1.0, -2.0])
    together = best_weight(5.0, column, others, np.array([[0], [1]]), np.array([1.0]))
    apart = best_weight(5.0, column, others, np.array([[0], [1]]), np.array([-1.0]))
    assert together == 5.0
    assert 1 < apart < 2


def test_unlabelled_distances_are_half_squared_euclidean_and_zero_for_neighbours():
    rng = np.random.RandomState(0)
    X = rng.standard_normal((50, 30))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    (one, other), targets = vector_targets(X, 2000, rng)
    expected = np.minimum(((X[one] - X[other]) ** 2).sum(axis=1) / 2, 1)
    far = targets > 0
    np.testing.assert_allclose(targets[far], expected[far])
    assert far.mean() == pytest.approx(0.95, abs=0.02)
    assert expected[~far].max() < expected[far].min()


def test_labels_bring_distant_clusters_of_one_class_together():
    X, y = clusters()
    two_clusters_each = y // 2
    hasher = BinaryReconstructiveEmbedding(n_bits=16, random_state=0)
    supervised = hasher.fit(X, two_clusters_each).transform(X)
    unsupervised = hasher.fit(X).transform(X)
    same_class = (two_clusters_each[:, None] == two_clusters_each) & (y[:, None] != y)

    def distance(bits):
        return (bits[:, None] != bits).mean(axis=2)[same_class].mean()

    assert distance(supervised) < 0.6 * distance(unsupervised)


def clusters():
    rng = np.random.default_rng(0)
    y = np.arange(120) % 4
    centres = rng.standard_normal((4, 24)) * 2
    return centres[y] + rng.standard_normal((120, 24)), y
