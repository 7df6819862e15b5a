"""NDCG, normalised discounted cumulative gain: a score for graded relevance.

An item of grade g (number of labels in common with the query) has gain 2^g − 1, divided by
log2(1 + rank). The sum over the list is divided by that of the best possible list.

Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques", 2002, with the gain
of Burges et al., "Learning to rank using gradient descent", 2005.
"""

from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int

from orbithash.metrics.precision import counts_before


def expected_ndcg(
    items: Int[np.ndarray, "queries distances"],
    by_grade: Int[np.ndarray, "queries grades distances"],
) -> Float[np.ndarray, " queries"]:
    """Return the mean of NDCG over all orders of the ties; NaN without relevant items.

    `by_grade[:, g - 1]` counts the items of grade g at each distance. Here an item of grade 1
    precedes one of grade 2: (1 + 3/log2(3)) / (3 + 1/log2(3)).

    >>> expected_ndcg(np.array([[1, 1]]), np.array([[[1, 0], [0, 1]]])).round(4)
    array([0.7967])
    """
    discounts = discount_sums(int(items.sum(axis=1).max(initial=0)))
    gains = relative_gains(by_grade.shape[1])
    # Every rank of a tie has the mean gain of its items.
    mean_gain = np.einsum("qgd,g->qd", by_grade, gains) / np.maximum(items, 1)
    before = counts_before(items)
    gained = (mean_gain * (discounts[before + items] - discounts[before])).sum(axis=1)

    best_first, best_gains = by_grade.sum(axis=2)[:, ::-1], gains[::-1]
    before = counts_before(best_first)
    ideal = (discounts[before + best_first] - discounts[before]) @ best_gains
    return np.where(ideal > 0, gained / np.where(ideal > 0, ideal, 1), np.nan)


@lru_cache(maxsize=1)  # the same for every chunk of queries
def discount_sums(n_ranks: int) -> Float[np.ndarray, " ranks_and_none"]:
    """Return the sums of the discounts of the first 0, 1, … `n_ranks` ranks."""
    return np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, n_ranks + 2)))])


def relative_gains(n_grades: int) -> Float[np.ndarray, " grades"]:
    """Return the gains 2^g − 1 of grades 1 … n_grades, divided by 2^n_grades against overflow."""
    grades = np.arange(1, n_grades + 1)
    gains: np.ndarray = np.exp2(grades - n_grades) - np.exp2(-n_grades)
    return gains
