"""Choosing a deep method's settings on validation images, with the same trials for every method."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from orbithash.data import LabelledImages
from orbithash.evaluation import evaluate_codes
from orbithash.experiments.encoding import DeepSettings, deep_codes
from orbithash.training import Epoch


@dataclass(frozen=True)
class Trial:
    """One candidate and how well its codes did on the validation images."""

    settings: DeepSettings
    map: float


def run_trials(
    dataset: LabelledImages,
    method: str,
    n_bits: int,
    candidates: Sequence[DeepSettings],
    *,
    seed: int,
    after_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> tuple[Trial, ...]:
    """Train once with each candidate; validation images ask and training images answer.

    The queries and the rest of the database are never looked at.
    """
    split, labels = dataset.split, dataset.labels
    trials = []
    for settings in candidates:
        codes = deep_codes(dataset, method, n_bits, settings, seed=seed, after_epoch=after_epoch)
        scores = evaluate_codes(
            codes[split.validation],
            codes[split.train],
            labels[split.validation],
            labels[split.train],
            n_bits=n_bits,
        )
        trials.append(Trial(settings, scores.map))
    return tuple(trials)


def best_settings(trials: Sequence[Trial]) -> DeepSettings:
    """The candidate with the highest validation MAP; the first of equals."""
    return max(trials, key=lambda trial: trial.map).settings


def grid(
    base: DeepSettings, *, margins: Sequence[float], learning_rates: Sequence[float]
) -> tuple[DeepSettings, ...]:
    """Every margin with every learning rate."""
    return tuple(
        replace(base, margin=margin, learning_rate=rate)
        for margin in margins
        for rate in learning_rates
    )
