"""Random parts of a dataset with the same number of images of every class."""

import numpy as np
from jaxtyping import Int, Int64

from orbithash.errors import InputError


def stratified_parts(
    labels: Int[np.ndarray, " n"], per_class: list[int], *, seed: int
) -> list[Int64[np.ndarray, " part"]]:
    """Disjoint sets of row numbers with so many images of every class, and the rest as the last.

    >>> [part.tolist() for part in stratified_parts(np.array([0, 0, 0, 1, 1, 1]), [1], seed=0)]
    [[2, 5], [0, 1, 3, 4]]
    """
    rng = np.random.default_rng(seed)
    parts: list[list[np.ndarray]] = [[] for _ in range(len(per_class) + 1)]
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        if len(rows) < sum(per_class):
            raise InputError(
                f"class {label} has {len(rows)} images but the parts need {sum(per_class)} of each "
                "class; ask for fewer"
            )
        for part, chosen in zip(parts, np.split(rows, np.cumsum(per_class)), strict=True):
            part.append(chosen)
    return [np.sort(np.concatenate(part)) for part in parts]
