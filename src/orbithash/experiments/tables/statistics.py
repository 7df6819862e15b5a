"""Means over seeds with standard errors, and a paired test between two methods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64
from scipy.stats import t as student

from orbithash.evaluation import Scores

SIGNIFICANT = 0.05  # significance level of the reports

SeedMaps = Mapping[int, float]  # MAP by seed


@dataclass(frozen=True)
class Summary:
    """Mean over seeds; a single seed has no deviation and no standard error."""

    mean: float
    deviation: float | None  # standard deviation over seeds
    standard_error: float | None  # of the mean


@dataclass(frozen=True)
class PairedTest:
    """Student's paired t-test between the MAP of two methods, paired by seed.

    Two losses with the same seed start at the same weights and see the same batches, so that much
    of the randomness is common to both and cancels in the difference. With five seeds the t-test
    can detect a small but consistent difference; the smallest two-sided p-value of sign and rank
    tests is 0.0625. The test covers the randomness of training, not the choice of queries.
    """

    difference: float  # mean over the seeds
    standard_error: float
    p: float  # two-sided


def summarise(map_values: Sequence[float]) -> Summary:
    """Return mean, standard deviation and standard error.

    >>> summarise([0.25, 0.75, 1.25])
    Summary(mean=0.75, deviation=0.5, standard_error=0.2886751345948129)
    """
    values = np.array(map_values)
    if len(values) < 2:
        return Summary(float(values.mean()), None, None)
    deviation = float(values.std(ddof=1))
    return Summary(float(values.mean()), deviation, deviation / len(values) ** 0.5)


def paired_test(map_by_seed: SeedMaps, other_map_by_seed: SeedMaps) -> PairedTest | None:
    """Compare two methods on the seeds that both have; None if there are fewer than two.

    >>> round(paired_test({0: 0.5, 1: 0.6, 2: 0.7}, {0: 0.4, 1: 0.4, 2: 0.4}).p, 3)
    0.074
    """
    seeds = sorted(map_by_seed.keys() & other_map_by_seed.keys())
    if len(seeds) < 2:
        return None
    differences = np.array([map_by_seed[seed] - other_map_by_seed[seed] for seed in seeds])
    summary = summarise(differences.tolist())
    error = summary.standard_error or 0.0
    if error == 0:  # all differences are equal
        return PairedTest(summary.mean, 0.0, 0.0 if summary.mean else 1.0)
    p = 2 * student.sf(abs(summary.mean) / error, len(seeds) - 1)
    return PairedTest(summary.mean, error, float(p))


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """Correct the p-values of several tests, so that they bound the family-wise error rate.

    Holm, "A Simple Sequentially Rejective Multiple Test Procedure", 1979.

    >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
    {'a': 0.03, 'c': 0.06, 'b': 0.06}
    """
    corrected: dict[str, float] = {}
    highest = 0.0
    for rank, name in enumerate(sorted(p, key=lambda name: p[name])):
        highest = max(highest, min(1.0, (len(p) - rank) * p[name]))
        corrected[name] = highest
    return corrected


def mean_bounds(runs: Sequence[Scores]) -> tuple[float, float]:
    """Return the MAP with ties broken worst and best, each averaged over runs."""
    lowest, highest = np.mean([scores.map_bounds for scores in runs], axis=0)
    return float(lowest), float(highest)


def mean_recall_precision(
    runs: Sequence[Scores],
) -> tuple[Float[np.ndarray, " radii"], Float[np.ndarray, " radii"]]:
    """Return recall and precision by radius, from the smallest at which every run has results."""
    precision = np.mean([scores.precision_recall.precision for scores in runs], axis=0)
    recall = np.mean([scores.precision_recall.recall for scores in runs], axis=0)
    is_defined = ~np.isnan(precision)  # NaN: in some run, no query has a result within the radius
    return recall[is_defined], precision[is_defined]


def mean_precision_at(
    runs: Sequence[Scores],
) -> tuple[Int64[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Return the values of N that all runs have, and the mean precision@N at each."""
    numbers = sorted(set.intersection(*(set(scores.precision_at) for scores in runs)))
    precision = [np.mean([scores.precision_at[n] for scores in runs]) for n in numbers]
    return np.array(numbers, dtype=np.int64), np.array(precision)
