"""Precision of ranked lists: average precision (AP), of the first N, and of Hamming balls; hits.

AP is the mean of the precisions at the ranks of the relevant items. Hamming distances are small
integers, so a ranked list consists mostly of ties, and the order inside the ties changes AP by
several points. These functions cover all orders, from two histograms:

items     (queries, distances)  number of database items at each distance from each query
relevant  (queries, distances)  number of relevant ones among them

AP at a cutoff counts the ranks up to it and divides by min(cutoff, relevant items). Queries may
have cutoffs of their own: AP@R is AP at the number R of the query's relevant items. A query without
relevant items has AP NaN, so that a mean can leave it out.
"""

import numpy as np
from jaxtyping import Float, Int
from scipy.special import digamma, gammaln


def expected_average_precision(
    items: Int[np.ndarray, "queries distances"],
    relevant: Int[np.ndarray, "queries distances"],
    cutoff: int | Int[np.ndarray, " queries"] | None = None,
) -> Float[np.ndarray, " queries"]:
    """Return the mean of AP over all orders of the ties.

    One relevant of two tied items comes first or second, with AP 1 or 1/2:

    >>> expected_average_precision(np.array([[0, 2]]), np.array([[0, 1]]))
    array([0.75])
    """
    before, relevant_before = counts_before(items), counts_before(relevant)
    ranks = ranks_within(before, items, cutoff)
    chance = relevant / np.maximum(items, 1)  # that an item at a given rank of the tie is relevant
    # That another item of the tie is relevant, given one that is.
    other_chance = np.maximum(relevant - 1, 0) / np.maximum(items - 1, 1)
    # The sum of (relevant_before + 1 + (u − 1)·other_chance) / (before + u) over ranks u = 1, 2, ….
    precisions = (relevant_before + 1 - other_chance * (before + 1)) * harmonic_difference(
        before, ranks
    ) + other_chance * ranks
    return divide_by_relevant((chance * precisions).sum(axis=1), relevant, cutoff)


def optimistic_average_precision(
    items: Int[np.ndarray, "queries distances"],
    relevant: Int[np.ndarray, "queries distances"],
    cutoff: int | Int[np.ndarray, " queries"] | None = None,
) -> Float[np.ndarray, " queries"]:
    """Return the highest AP of any order of the ties: relevant items first.

    >>> optimistic_average_precision(np.array([[0, 2]]), np.array([[0, 1]]))
    array([1.])
    """
    before = counts_before(items)
    return divide_by_relevant(consecutive_precisions(before, relevant, cutoff), relevant, cutoff)


def pessimistic_average_precision(
    items: Int[np.ndarray, "queries distances"],
    relevant: Int[np.ndarray, "queries distances"],
    cutoff: int | Int[np.ndarray, " queries"] | None = None,
) -> Float[np.ndarray, " queries"]:
    """Return the lowest AP of any order of the ties: relevant items last.

    >>> pessimistic_average_precision(np.array([[0, 2]]), np.array([[0, 1]]))
    array([0.5])
    """
    before = counts_before(items) + items - relevant
    return divide_by_relevant(consecutive_precisions(before, relevant, cutoff), relevant, cutoff)


def precision_within(
    items: Int[np.ndarray, "queries distances"], relevant: Int[np.ndarray, "queries distances"]
) -> Float[np.ndarray, "queries distances"]:
    """Return the precision of each query's Hamming ball, for every radius.

    An empty ball has precision NaN, so that a mean can leave it out.

    >>> precision_within(np.array([[0, 2, 2]]), np.array([[0, 2, 0]]))
    array([[nan, 1. , 0.5]])
    """
    with np.errstate(invalid="ignore"):
        precision: np.ndarray = relevant.cumsum(axis=1) / items.cumsum(axis=1)
    return precision


def recall_within(
    relevant: Int[np.ndarray, "queries distances"],
) -> Float[np.ndarray, "queries distances"]:
    """Return the fraction of a query's relevant items inside its Hamming ball, for every radius.

    A query without relevant items has recall NaN.

    >>> recall_within(np.array([[0, 1, 3]]))
    array([[0.  , 0.25, 1.  ]])
    """
    with np.errstate(invalid="ignore"):
        recall: np.ndarray = relevant.cumsum(axis=1) / relevant.sum(axis=1, keepdims=True)
    return recall


def precision_of_first(
    items: Int[np.ndarray, "queries distances"],
    relevant: Int[np.ndarray, "queries distances"],
    cutoff: int,
) -> Float[np.ndarray, " queries"]:
    """Return the precision of the first `cutoff` items, averaged over all orders of the ties.

    For a smaller database, it is the precision of all items.

    >>> precision_of_first(np.array([[1, 4]]), np.array([[1, 1]]), cutoff=3)
    array([0.5])
    """
    ranks = ranks_within(counts_before(items), items, cutoff)
    found = (ranks * (relevant / np.maximum(items, 1))).sum(axis=1)
    precision: np.ndarray = found / np.minimum(cutoff, items.sum(axis=1))
    return precision


def hit_among_first(
    items: Int[np.ndarray, "queries distances"],
    relevant: Int[np.ndarray, "queries distances"],
    cutoff: int,
) -> Float[np.ndarray, " queries"]:
    """Return the chance that a relevant item is among the first `cutoff`, over all orders of ties.

    Its mean over queries is Recall@k as metric learning defines it: the share of queries that have
    at least one relevant item among the first k. A query without relevant items has NaN.

    The first two of three tied items miss the only relevant one in one order of three:

    >>> hit_among_first(np.array([[0, 3]]), np.array([[0, 1]]), cutoff=2).round(4)
    array([0.6667])
    """
    # A tie within the cutoff hits if it has a relevant item. The tie that crosses the cutoff misses
    # if its first ranks are all taken by irrelevant items: C(irrelevant, ranks) / C(items, ranks).
    ranks = ranks_within(counts_before(items), items, cutoff)
    irrelevant = items - relevant
    can_miss = irrelevant >= ranks
    log_chance = (
        gammaln(irrelevant + 1.0)
        - gammaln(np.where(can_miss, irrelevant - ranks, 0) + 1.0)
        - gammaln(items + 1.0)
        + gammaln(items - ranks + 1.0)
    )
    miss = np.where(can_miss, np.exp(log_chance), 0.0)
    return np.where(relevant.any(axis=1), 1 - miss.prod(axis=1), np.nan)


def consecutive_precisions(
    before: Int[np.ndarray, "queries distances"],
    relevant: Int[np.ndarray, "queries distances"],
    cutoff: int | Int[np.ndarray, " queries"] | None,
) -> Float[np.ndarray, " queries"]:
    """Sum the precisions if the relevant items of a tie are consecutive, after `before` items.

    Number u of them has precision (relevant_before + u) / (before + u).
    """
    ranks = ranks_within(before, relevant, cutoff)
    irrelevant_before = before - counts_before(relevant)
    sums: np.ndarray = (ranks - irrelevant_before * harmonic_difference(before, ranks)).sum(axis=1)
    return sums


def divide_by_relevant(
    sums: Float[np.ndarray, " queries"],
    relevant: Int[np.ndarray, "queries distances"],
    cutoff: int | Int[np.ndarray, " queries"] | None,
) -> Float[np.ndarray, " queries"]:
    """Return AP from the sum of precisions; NaN without relevant items."""
    n_relevant = relevant.sum(axis=1)
    divisor = n_relevant if cutoff is None else np.minimum(n_relevant, cutoff)
    return np.where(n_relevant > 0, sums / np.maximum(divisor, 1), np.nan)


def counts_before(
    counts: Int[np.ndarray, "queries distances"],
) -> Int[np.ndarray, "queries distances"]:
    """Return the number of items nearer than each distance.

    >>> counts_before(np.array([[2, 1, 4]]))
    array([[0, 2, 3]])
    """
    before: np.ndarray = counts.cumsum(axis=1) - counts
    return before


def ranks_within(
    before: Int[np.ndarray, "queries distances"],
    items: Int[np.ndarray, "queries distances"],
    cutoff: int | Int[np.ndarray, " queries"] | None,
) -> Int[np.ndarray, "queries distances"]:
    """Return the number of ranks of each tie up to the cutoff."""
    if cutoff is None:
        return items
    return np.asarray(np.clip(np.reshape(cutoff, (-1, 1)) - before, 0, items))


def harmonic_difference(
    start: Int[np.ndarray, "*shape"], count: Int[np.ndarray, "*shape"]
) -> Float[np.ndarray, "*shape"]:
    """Return the sum 1/(start + 1) + … + 1/(start + count), without adding up its terms.

    >>> harmonic_difference(np.array([0, 1]), np.array([2, 2])).round(4)
    array([1.5   , 0.8333])
    """
    # For large `start`, the difference of two harmonic numbers cancels, and it is later multiplied
    # by `start`. H(n) = γ + ln x + 1/24x² − 7/960x⁴ + 31/8064x⁶ with x = n + 1/2 avoids that: its
    # logarithms subtract without loss.
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
