"""AP, average precision: the mean of the precisions at the ranks of the relevant items.

Hamming distances are small integers, so most of a ranked list is ties, and how a tie is ordered
moves AP by several points. These functions score every order at once, from two histograms:

items     (queries, distances)  how many database items lie at each distance of each query
relevant  (queries, distances)  how many of them answer the query

AP at a cutoff counts the ranks up to it and divides by min(cutoff, relevant items). A query that
nothing answers has AP NaN, so that a mean can leave it out.
"""

import numpy as np
from jaxtyping import Float, Int
from scipy.special import digamma


def expected_average_precision(
    items: Int[np.ndarray, "queries distances"],
    relevant: Int[np.ndarray, "queries distances"],
    cutoff: int | None = None,
) -> Float[np.ndarray, " queries"]:
    """Mean of AP over all orders of the ties.

    One relevant of two tied items comes first or second, with AP 1 or 1/2:

    >>> expected_average_precision(np.array([[0, 2]]), np.array([[0, 1]]))
    array([0.75])
    """
    before, relevant_before = counts_before(items), counts_before(relevant)
    ranks = ranks_within(before, items, cutoff)
    chance = relevant / np.maximum(items, 1)  # that a given rank of the tie is relevant
    # Beside a relevant item, the chance of any other one of its tie.
    other_chance = np.maximum(relevant - 1, 0) / np.maximum(items - 1, 1)
    # The sum of (relevant_before + 1 + (u − 1)·other_chance) / (before + u) over ranks u = 1, 2, ….
    precisions = (relevant_before + 1 - other_chance * (before + 1)) * harmonic_difference(
        before, ranks
    ) + other_chance * ranks
    return divide_by_relevant((chance * precisions).sum(axis=1), relevant, cutoff)


def optimistic_average_precision(
    items: Int[np.ndarray, "queries distances"],
    relevant: Int[np.ndarray, "queries distances"],
    cutoff: int | None = None,
) -> Float[np.ndarray, " queries"]:
    """The highest AP that an order of the ties gives: relevant items first.

    >>> optimistic_average_precision(np.array([[0, 2]]), np.array([[0, 1]]))
    array([1.])
    """
    before = counts_before(items)
    return divide_by_relevant(consecutive_precisions(before, relevant, cutoff), relevant, cutoff)


def pessimistic_average_precision(
    items: Int[np.ndarray, "queries distances"],
    relevant: Int[np.ndarray, "queries distances"],
    cutoff: int | None = None,
) -> Float[np.ndarray, " queries"]:
    """The lowest AP that an order of the ties gives: relevant items last.

    >>> pessimistic_average_precision(np.array([[0, 2]]), np.array([[0, 1]]))
    array([0.5])
    """
    before = counts_before(items) + items - relevant
    return divide_by_relevant(consecutive_precisions(before, relevant, cutoff), relevant, cutoff)


def consecutive_precisions(
    before: Int[np.ndarray, "queries distances"],
    relevant: Int[np.ndarray, "queries distances"],
    cutoff: int | None,
) -> Float[np.ndarray, " queries"]:
    """Sum of precisions where the relevant items of a tie follow each other after `before` items.

    Item u of them has precision (relevant_before + u) / (before + u).
    """
    ranks = ranks_within(before, relevant, cutoff)
    missed = before - counts_before(relevant)
    sums: np.ndarray = (ranks - missed * harmonic_difference(before, ranks)).sum(axis=1)
    return sums


def divide_by_relevant(
    sums: Float[np.ndarray, " queries"],
    relevant: Int[np.ndarray, "queries distances"],
    cutoff: int | None,
) -> Float[np.ndarray, " queries"]:
    """AP from the sum of precisions; NaN where nothing is relevant."""
    total = relevant.sum(axis=1)
    most = total if cutoff is None else np.minimum(total, cutoff)
    return np.where(total > 0, sums / np.maximum(most, 1), np.nan)


def counts_before(
    counts: Int[np.ndarray, "queries distances"],
) -> Int[np.ndarray, "queries distances"]:
    """How many are nearer than each distance.

    >>> counts_before(np.array([[2, 1, 4]]))
    array([[0, 2, 3]])
    """
    before: np.ndarray = counts.cumsum(axis=1) - counts
    return before


def ranks_within(
    before: Int[np.ndarray, "queries distances"],
    items: Int[np.ndarray, "queries distances"],
    cutoff: int | None,
) -> Int[np.ndarray, "queries distances"]:
    """How many ranks each tie holds up to the cutoff."""
    return items if cutoff is None else np.asarray(np.clip(cutoff - before, 0, items))


def harmonic_difference(
    start: Int[np.ndarray, "*shape"], count: Int[np.ndarray, "*shape"]
) -> Float[np.ndarray, "*shape"]:
    """The sum 1/(start + 1) + … + 1/(start + count), without a table of its terms.

    >>> harmonic_difference(np.array([0, 1]), np.array([2, 2])).round(4)
    array([1.5   , 0.8333])
    """
    # Far down the list the sum is tiny beside the harmonic numbers it is the difference of, and
    # is then multiplied by `start`: take it from H(n) = γ + ln x + 1/24x² − 7/960x⁴ + 31/8064x⁶
    # with x = n + 1/2 instead, whose logarithms subtract without loss.
    near, far = start + 0.5, start + count + 0.5
    by_series = (
        np.log1p(count / near)
        + (far**-2.0 - near**-2.0) / 24
        - (far**-4.0 - near**-4.0) * 7 / 960
        + (far**-6.0 - near**-6.0) * 31 / 8064
    )
    by_digamma = digamma(start + count + 1.0) - digamma(start + 1.0)
    sums: np.ndarray = np.where(start < 64, by_digamma, by_series)
    return sums
