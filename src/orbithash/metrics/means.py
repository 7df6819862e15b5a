"""Means over queries: of all of them, and of those of each class."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped


class RunningMeans:
    """Running means by name, of one value or one curve per query; NaN is left out.

    >>> means = RunningMeans()
    >>> means.add({"precision": np.array([[np.nan, 1.0], [0.5, 0.0]])})
    >>> means["precision"]
    array([0.5, 0.5])
    """

    def __init__(self) -> None:
        self._sums: dict[Any, Any] = {}
        self._counts: dict[Any, Any] = {}

    def add(self, values: dict[Any, Float[np.ndarray, "queries ..."]]) -> None:
        for name, value in values.items():
            self._sums[name] = self._sums.get(name, 0) + np.nansum(value, axis=0)
            self._counts[name] = self._counts.get(name, 0) + (~np.isnan(value)).sum(axis=0)

    def sum_of(self, name: Any) -> Any:
        return self._sums[name]

    def count_of(self, name: Any) -> Any:
        return self._counts[name]

    def by_cutoff(self, name: str, cutoffs: Iterable[int]) -> dict[int, float]:
        return {n: float(self[name, n]) for n in cutoffs}

    def __getitem__(self, name: Any) -> Any:
        with np.errstate(invalid="ignore"):
            return self._sums[name] / self._counts[name]


def mean_by_class(
    values: Float[np.ndarray, " queries"], labels: Shaped[np.ndarray, "queries *classes"]
) -> dict[str, float]:
    """Return the mean over the queries of each class, by its number; NaN is left out.

    A query with several labels counts for each of them.

    >>> mean_by_class(np.array([1.0, 0.5, np.nan]), np.array([7, 7, 9]))
    {'7': 0.75}
    """
    is_scored = ~np.isnan(values)
    values, labels = values[is_scored], labels[is_scored]
    if labels.ndim == 2:
        query, numbers = np.nonzero(labels)
        values = values[query]
    else:
        numbers = labels
    classes, positions, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    means = np.bincount(positions, values, minlength=len(classes)) / counts
    return {str(label): mean for label, mean in zip(classes.tolist(), means.tolist(), strict=True)}
