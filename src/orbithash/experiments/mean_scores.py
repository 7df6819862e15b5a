"""The scores of one method, averaged over the runs of its seeds."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int64

from orbithash.evaluation import Scores


def mean_bounds(runs: Sequence[Scores]) -> tuple[float, float]:
    """The lowest and the highest MAP that an order of the ties gives."""
    lowest, highest = np.mean([scores.map_bounds for scores in runs], axis=0)
    return float(lowest), float(highest)


def mean_recall_precision(
    runs: Sequence[Scores],
) -> tuple[Float[np.ndarray, " radii"], Float[np.ndarray, " radii"]]:
    """Recall and precision by radius, from the first at which every run finds something."""
    precision = np.mean([scores.precision_recall.precision for scores in runs], axis=0)
    recall = np.mean([scores.precision_recall.recall for scores in runs], axis=0)
    found = ~np.isnan(precision)
    return recall[found], precision[found]


def mean_precision_at(
    runs: Sequence[Scores],
) -> tuple[Int64[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """The numbers of images returned, and the precision among so many."""
    numbers = sorted(runs[0].precision_at)
    precision = [np.mean([scores.precision_at[n] for scores in runs]) for n in numbers]
    return np.array(numbers, dtype=np.int64), np.array(precision)
