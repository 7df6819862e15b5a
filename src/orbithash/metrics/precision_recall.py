"""Precision and recall by Hamming radius, and precision of the first N.

Histograms as in `average_precision`: column d of `items` counts the database items at distance d,
column d of `relevant` the relevant ones among them.
"""

import numpy as np
from jaxtyping import Float, Int

from orbithash.metrics.average_precision import counts_before, ranks_within


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
