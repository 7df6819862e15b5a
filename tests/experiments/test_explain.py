import itertools

import numpy as np
import pytest

from literal_loss import average_precision
from orbithash.experiments.explain import short_list, weight_pairs

MARGIN, GAMMA = 1.0, 2.0


@pytest.fixture(scope="module")
def weighted():
    """A list of nine images with three related ones, and its pairs."""
    rng = np.random.default_rng(1)
    embeddings = rng.random((10, 8))
    is_related = np.array([False, True, False, False, True, False, False, True, False])
    order, pairs = weight_pairs(embeddings, is_related, margin=MARGIN, gamma=GAMMA)
    return embeddings, is_related, order, pairs


def test_the_list_is_ordered_by_hamming_distance_then_by_embedding_distance(weighted):
    embeddings, _, order, _ = weighted
    query, others = embeddings[0], embeddings[1:]
    keys = [
        (np.sum((query > 0.5) != (others[item] > 0.5)), np.sum((query - others[item]) ** 2))
        for item in order
    ]
    assert keys == sorted(keys)


def test_the_weight_of_a_swap_is_the_change_of_average_precision(weighted):
    _, is_related, order, pairs = weighted
    ranked = is_related[order].tolist()
    expected = {
        (j + 1, k + 1)
        for j, k in itertools.permutations(range(9), 2)
        if ranked[j] and not ranked[k]
    }
    assert {(pair.positive, pair.negative) for pair in pairs} == expected
    for pair in pairs:
        swapped = list(ranked)
        swapped[pair.positive - 1], swapped[pair.negative - 1] = False, True
        change = abs(average_precision(ranked) - average_precision(swapped))
        assert pair.swap == pytest.approx(change)
        assert pair.misranked == (pair.negative < pair.positive)


def test_shares_are_those_of_the_loss_with_and_without_weights(weighted):
    embeddings, _, order, pairs = weighted
    distance = ((embeddings[1:] - embeddings[0]) ** 2).sum(axis=1)[order]
    loss = np.array(
        [
            max(0, MARGIN + distance[p.positive - 1] - distance[p.negative - 1]) ** GAMMA
            for p in pairs
        ]
    )
    swap = np.array([pair.swap for pair in pairs])
    np.testing.assert_allclose([pair.alone for pair in pairs], loss / loss.sum())
    np.testing.assert_allclose([pair.weighted for pair in pairs], swap * loss / (swap * loss).sum())


def test_a_short_list_has_the_first_and_the_last_related_and_the_nearest_unrelated():
    is_related = np.zeros(200, dtype=bool)
    is_related[[3, 10, 20, 30, 40, 50, 60, 70, 150]] = True
    positions = short_list(is_related)
    assert len(positions) == 16
    assert positions[is_related[positions]][[0, -1]].tolist() == [3, 150]
    assert positions[~is_related[positions]].tolist() == [0, 1, 2, 4, 5, 6, 7, 8, 9, 11]
    assert short_list(np.ones(5, dtype=bool)) is None
