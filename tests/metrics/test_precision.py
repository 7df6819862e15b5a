import itertools
import math

import numpy as np
import pytest

from orbithash.metrics.precision import (
    expected_average_precision,
    harmonic_difference,
    hit_among_first,
    optimistic_average_precision,
    pessimistic_average_precision,
    precision_of_first,
    precision_within,
    recall_within,
)

# Items and relevant items by distance, few enough to enumerate all orders of the ties.
LISTS = [
    ([1, 2, 3], [1, 0, 2]),
    ([0, 6, 0], [0, 3, 0]),
    ([2, 0, 4, 1], [1, 0, 1, 1]),
    ([3, 3, 1], [0, 0, 1]),
    ([5, 2], [5, 2]),
    ([1, 1, 1, 1], [0, 1, 0, 1]),
    ([1], [1]),
]
ITEMS, RELEVANT = [0, 2, 0, 3, 1], [0, 1, 0, 2, 0]
CUTOFFS = [None, 1, 2, 3, 4, 5, 100]


@pytest.mark.parametrize("cutoff", CUTOFFS)
@pytest.mark.parametrize(("items", "relevant"), LISTS)
def test_expected_ap_is_the_mean_over_all_orders_of_the_ties_and_the_bounds_are_the_extremes(
    items, relevant, cutoff
):
    every = [average_precision(order, cutoff) for order in orders(items, relevant)]
    histograms = np.array([items]), np.array([relevant])
    assert expected_average_precision(*histograms, cutoff) == pytest.approx(np.mean(every))
    assert optimistic_average_precision(*histograms, cutoff) == pytest.approx(max(every))
    assert pessimistic_average_precision(*histograms, cutoff) == pytest.approx(min(every))


@pytest.mark.parametrize("cutoff", [1, 2, 3, 4, 5, 100])
@pytest.mark.parametrize(("items", "relevant"), LISTS)
def test_the_chance_of_a_hit_is_the_share_of_orders_with_a_relevant_item(items, relevant, cutoff):
    every = [any(order[:cutoff]) for order in orders(items, relevant)]
    hit = hit_among_first(np.array([items]), np.array([relevant]), cutoff)
    assert hit == pytest.approx(np.mean(every), abs=1e-12)


def test_the_chance_of_a_hit_in_a_large_tie_is_that_of_drawing_without_replacement():
    n, relevant = 1_000_000, 20_000
    miss = math.prod((n - relevant - rank) / (n - rank) for rank in range(10))
    hit = hit_among_first(np.array([[0, n]]), np.array([[0, relevant]]), 10)
    assert hit == pytest.approx(1 - miss, abs=1e-8)
    assert np.isnan(hit_among_first(np.array([[2]]), np.array([[0]]), 1))


def test_queries_may_have_cutoffs_of_their_own():
    items, relevant = np.array([[1, 2, 3], [2, 0, 4]]), np.array([[1, 0, 2], [1, 0, 1]])
    for score in (
        expected_average_precision,
        optimistic_average_precision,
        pessimistic_average_precision,
    ):
        alone = [score(items[[row]], relevant[[row]], n)[0] for row, n in enumerate((3, 2))]
        assert score(items, relevant, np.array([3, 2])) == pytest.approx(alone)


@pytest.mark.parametrize("cutoff", CUTOFFS)
def test_bounds_enclose_the_expected(cutoff):
    rng = np.random.default_rng(0)
    items = rng.integers(0, 50, (200, 17)) + 1
    relevant = rng.binomial(items, 0.1)
    relevant[:, 3] += relevant.sum(axis=1) == 0  # each query has a relevant item
    lowest = pessimistic_average_precision(items, relevant, cutoff)
    expected = expected_average_precision(items, relevant, cutoff)
    highest = optimistic_average_precision(items, relevant, cutoff)
    assert np.all(lowest <= expected + 1e-12)
    assert np.all(expected <= highest + 1e-12)
    assert np.all((lowest >= 0) & (highest <= 1 + 1e-12))


@pytest.mark.parametrize(
    "score",
    [expected_average_precision, optimistic_average_precision, pessimistic_average_precision],
)
def test_a_query_without_relevant_items_has_no_score(score):
    items, relevant = np.array([[2, 3], [2, 3]]), np.array([[0, 0], [0, 3]])
    np.testing.assert_array_equal(np.isnan(score(items, relevant)), [True, False])


@pytest.mark.parametrize("start", [0, 1, 63, 64, 65, 1000, 10**6, 10**9])
@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_harmonic_differences_are_exact_far_down_the_list(start, count):
    exact = math.fsum(1 / (start + u) for u in range(1, count + 1))
    computed = harmonic_difference(np.array([start]), np.array([count]))
    assert computed == pytest.approx(exact, rel=1e-13, abs=0)


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


def orders(items, relevant):
    """Yield the relevance by rank for every order of the ties, each as often as it occurs."""
    ties = [
        list(itertools.permutations([1] * m + [0] * (n - m)))
        for n, m in zip(items, relevant, strict=True)
    ]
    for chosen in itertools.product(*ties):
        yield list(itertools.chain(*chosen))


def average_precision(order, cutoff):
    cutoff = cutoff or len(order)
    found, total = 0, 0.0
    for rank, answers in enumerate(order[:cutoff], start=1):
        found += answers
        total += answers * found / rank
    return total / min(cutoff, sum(order))
