import itertools

import numpy as np
import pytest

from orbithash.metrics.precision_recall import precision_of_first, precision_within, recall_within

ITEMS, RELEVANT = [0, 2, 0, 3, 1], [0, 1, 0, 2, 0]


def test_curves_count_the_items_in_the_ball_of_each_radius():
    distances = np.repeat(np.arange(5), ITEMS)
    answers = np.array([1, 0, 1, 1, 0, 0])
    precision = precision_within(np.array([ITEMS]), np.array([RELEVANT]))[0]
    recall = recall_within(np.array([RELEVANT]))[0]
    assert np.isnan(precision[0])
    for radius in range(1, 5):
        inside = distances <= radius
        assert precision[radius] == pytest.approx(answers[inside].mean())
        assert recall[radius] == pytest.approx(answers[inside].sum() / 3)


@pytest.mark.parametrize("cutoff", [1, 2, 3, 4, 5, 6, 7, 1000])
def test_precision_at_is_the_mean_over_all_orders_of_the_ties(cutoff):
    first, second, last = [1, 0], [1, 1, 0], [0]
    every = [
        np.mean([*a, *b, *last][:cutoff])
        for a, b in itertools.product(itertools.permutations(first), itertools.permutations(second))
    ]
    computed = precision_of_first(np.array([ITEMS]), np.array([RELEVANT]), cutoff)
    assert computed == pytest.approx(np.mean(every))


def test_recall_without_relevant_items_is_nan():
    assert np.isnan(recall_within(np.zeros((1, 3), dtype=int))).all()
