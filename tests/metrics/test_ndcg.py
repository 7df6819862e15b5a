import itertools
import math

import numpy as np
import pytest

from orbithash.metrics.ndcg import expected_ndcg

# Grades of the items of each tie.
LISTS = [
    [[0, 2, 1], [1, 0], [3]],
    [[1, 0, 1, 0]],
    [[0], [0, 1], [], [2, 2, 0]],
    [[3], [2], [1]],
]


@pytest.mark.parametrize("ties", LISTS)
def test_ndcg_is_the_mean_over_all_orders_of_the_ties(ties):
    every = [
        ndcg(list(itertools.chain(*order)))
        for order in itertools.product(*map(itertools.permutations, ties))
    ]
    assert expected_ndcg(*histograms(ties)) == pytest.approx(np.mean(every))


def test_the_best_order_scores_one():
    assert expected_ndcg(*histograms([[3], [2, 2], [1], [0, 0]])) == pytest.approx(1)


def test_a_query_without_relevant_items_has_no_score():
    assert np.isnan(expected_ndcg(*histograms([[0, 0], [0]])))


def test_very_many_labels_in_common_do_not_overflow():
    items, by_grade = np.array([[1, 1]]), np.zeros((1, 2000, 2), dtype=int)
    by_grade[0, [0, 1999], [1, 0]] = 1
    assert expected_ndcg(items, by_grade) == pytest.approx(1)


def histograms(ties):
    highest = max(1, max(itertools.chain(*ties)))
    items = np.array([[len(tie) for tie in ties]])
    by_grade = [[tie.count(grade) for tie in ties] for grade in range(1, highest + 1)]
    return items, np.array([by_grade])


def ndcg(grades):
    return gain(grades) / gain(sorted(grades, reverse=True))


def gain(grades):
    return sum((2**grade - 1) / math.log2(1 + rank) for rank, grade in enumerate(grades, start=1))
