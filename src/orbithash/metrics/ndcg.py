"""NDCG, normalised discounted cumulative gain: a score for graded relevance.

An item of grade g (labels in common with the query) gains 2^g − 1, discounted by log2(1 + rank);
the sum is divided by that of the best possible list.

Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques", 2002, with the gain
of Burges et al., "Learning to rank using gradient descent", 2005.
"""

from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int

from orbithash.metrics.average_precision import counts_before


def expected_ndcg(
    items: Int[np.ndarray, "queries distances"],
    by_grade: Int[np.ndarray, "queries grades distances"],
) -> Float[np.ndarray, " queries"]:
    """Mean of NDCG over all orders of the ties; NaN for a query that nothing answers.

    `by_grade[:, g - 1]` counts the items of grade g at each distance. Here an item of grade 1
    precedes one of grade 2: (1 + 3/log2(3)) / (3 + 1/log2(3)).

    >>> expected_ndcg(np.array([[1, 1]]), np.array([[[1, 0], [0, 1]]])).round(4)
    array([0.7967])
    """
    discounts = discount_sums(int(items.sum(axis=1).max(initial=0)))
    gains = relative_gains(by_grade.shape[1])
    # In a tie every rank has the same chance of each item: its mean gain.
    mean_gain = np.einsum("qgd,g->qd", by_grade, gains) / np.maximum(items, 1)
    before = counts_before(items)
    gained = (mean_gain * (discounts[before + items] - discounts[before])).sum(axis=1)

    best_first, best_gains = by_grade.sum(axis=2)[:, ::-1], gains[::-1]
    before = counts_before(best_first)
    ideal = (discounts[before + best_first] - discounts[before]) @ best_gains
    return np.where(ideal > 0, gained / np.where(ideal > 0, ideal, 1), np.nan)


@lru_cache(maxsize=1)  # the same for every chunk of queries
def discount_sums(n_ranks: int) -> Float[np.ndarray, " ranks_and_none"]:
    """Sum of the discounts of the first 0, 1, … `n_ranks` ranks."""
    return np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, n_ranks + 2)))])


def relative_gains(n_grades: int) -> Float[np.ndarray, " grades"]:
    """Gains 2^g − 1 of the grades 1 … n_grades, over 2^n_grades so that none overflows."""
    grades = np.arange(1, n_grades + 1)
    gains: np.ndarray = np.exp2(grades - n_grades) - np.exp2(-n_grades)
    return gains
