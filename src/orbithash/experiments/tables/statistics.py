"""Means over seeds with their errors, and a paired test between two methods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64
from scipy.stats import t as student

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


SIGNIFICANT = 0.05  # a p-value below which a difference is called one

Maps = Mapping[int, float]  # MAP by seed


@dataclass(frozen=True)
class Summary:
    """Mean over seeds; of a single one nothing is known about its spread."""

    mean: float
    deviation: float | None  # standard deviation over seeds
    standard_error: float | None  # of the mean


@dataclass(frozen=True)
class PairedTest:
    """Whether one method is above another: Student's t of their differences, seed by seed.

    Two losses with the same seed start at the same weights and see the same batches, so that much
    of the chance is in both and falls out of the difference. With five seeds the t-test can tell
    a small steady difference; tests by signs or ranks alone cannot reach 5 % then. The test knows
    the chance of training, not that of which queries there are.
    """

    difference: float  # mean over the seeds
    standard_error: float
    p: float  # two-sided


def summarise(maps: Sequence[float]) -> Summary:
    """Mean, deviation and standard error.

    >>> summarise([0.25, 0.75, 1.25])
    Summary(mean=0.75, deviation=0.5, standard_error=0.2886751345948129)
    """
    values = np.array(maps)
    if len(values) < 2:
        return Summary(float(values.mean()), None, None)
    deviation = float(values.std(ddof=1))
    return Summary(float(values.mean()), deviation, deviation / len(values) ** 0.5)


def paired_test(maps: Maps, others: Maps) -> PairedTest | None:
    """Compare on the seeds that both have; None if these are fewer than two.

    >>> round(paired_test({0: 0.5, 1: 0.6, 2: 0.7}, {0: 0.4, 1: 0.4, 2: 0.4}).p, 3)
    0.074
    """
    seeds = sorted(maps.keys() & others.keys())
    if len(seeds) < 2:
        return None
    differences = np.array([maps[seed] - others[seed] for seed in seeds])
    summary = summarise(differences.tolist())
    error = summary.standard_error or 0.0
    if error == 0:  # the same difference every time
        return PairedTest(summary.mean, 0.0, 0.0 if summary.mean else 1.0)
    p = 2 * student.sf(abs(summary.mean) / error, len(seeds) - 1)
    return PairedTest(summary.mean, error, float(p))


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """P-values for several tests at once: the chance that any is wrong stays what it says.

    Holm, "A Simple Sequentially Rejective Multiple Test Procedure", 1979.

    >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
    {'a': 0.03, 'c': 0.06, 'b': 0.06}
    """
    adjusted: dict[str, float] = {}
    highest = 0.0
    for place, name in enumerate(sorted(p, key=lambda name: p[name])):
        highest = max(highest, min(1.0, (len(p) - place) * p[name]))
        adjusted[name] = highest
    return adjusted
