"""Images held out of training, on which settings and epochs are chosen."""

import numpy as np
from jaxtyping import Bool, Int, Int64

from orbithash.data.class_rows import rows_by_class
from orbithash.data.default_split import LEFT_TO_TRAIN


def hold_out(
    labels: Int[np.ndarray, " n"] | Int[np.ndarray, "n classes"] | Bool[np.ndarray, "n classes"],
    share: float,
    *,
    seed: int,
) -> tuple[Int64[np.ndarray, " rest"], Int64[np.ndarray, " held_out"]]:
    """Positions that train, and positions that are held out, each in order.

    Of every class the same share is held out, at least one image if two are left to train. Images
    of several labels belong to no one class: of them the share is drawn from all.

    >>> hold_out(np.array([0, 0, 0, 1, 1]), 0.2, seed=0)
    (array([0, 1, 3, 4]), array([2]))
    """
    rng = np.random.default_rng(seed)
    held_out = np.zeros(len(labels), dtype=bool)
    for rows in rows_by_class(labels) if share else []:
        wanted = max(1, round(share * len(rows)))
        chosen = rng.permutation(rows)[: max(0, min(wanted, len(rows) - LEFT_TO_TRAIN))]
        held_out[chosen] = True
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)
