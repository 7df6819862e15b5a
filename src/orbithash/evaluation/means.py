"""Means over queries that are scored a chunk at a time."""

from typing import Any

import numpy as np
from jaxtyping import Float


class Means:
    """Named means of what was added so far, one value or one curve per query; NaN is left out.

    >>> means = Means()
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

    def __getitem__(self, name: Any) -> Any:
        with np.errstate(invalid="ignore"):
            return self._sums[name] / self._counts[name]
