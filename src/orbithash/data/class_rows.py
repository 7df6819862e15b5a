"""Rows by class, for what is done to each class alike."""

import numpy as np
from jaxtyping import Bool, Int, Int64


def rows_by_class(
    labels: Int[np.ndarray, " n"] | Int[np.ndarray, "n classes"] | Bool[np.ndarray, "n classes"],
) -> list[Int64[np.ndarray, " rows"]]:
    """The row numbers of each class, in order.

    Images of several labels belong to no one class: they are all in one.

    >>> rows_by_class(np.array([7, 3, 7]))
    [array([1]), array([0, 2])]
    """
    if labels.ndim == 2:
        return [np.arange(len(labels))]
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]
