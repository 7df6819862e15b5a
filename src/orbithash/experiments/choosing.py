"""Choosing a deep method's settings on validation images, with the same trials for every method."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import UInt8

from orbithash.data import LabelledImages
from orbithash.evaluation import evaluate_codes
from orbithash.experiments.encoding import DeepSettings, deep_codes
from orbithash.training import Epoch


@dataclass(frozen=True, eq=False)
class Trial:
    """One candidate, trained from each seed."""

    settings: DeepSettings
    codes: tuple[UInt8[np.ndarray, "n bytes"], ...]  # of all images, by seed
    map: float  # on the validation images, mean over the seeds


def run_trials(
    dataset: LabelledImages,
    method: str,
    n_bits: int,
    candidates: Sequence[DeepSettings],
    *,
    seeds: Sequence[int],
    after_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> tuple[Trial, ...]:
    """Train with each candidate from each seed and score it on the validation images.

    From one seed alone, a candidate that trains unstably may look best by luck.
    """
    trials = []
    for settings in candidates:
        codes = tuple(
            deep_codes(dataset, method, n_bits, settings, seed=seed, after_epoch=after_epoch)
            for seed in seeds
        )
        maps = [validation_map(dataset, run, n_bits) for run in codes]
        trials.append(Trial(settings, codes, float(np.mean(maps))))
    return tuple(trials)


def validation_map(
    dataset: LabelledImages, codes: UInt8[np.ndarray, "n bytes"], n_bits: int
) -> float:
    """MAP where validation images ask and training images answer; no query is looked at."""
    asking, answering = dataset.split.validation, dataset.split.train
    labels = dataset.labels
    return evaluate_codes(
        codes[asking], codes[answering], labels[asking], labels[answering], n_bits=n_bits
    ).map


def best_trial(trials: Sequence[Trial]) -> Trial:
    """The trial with the highest validation MAP; the first of equals."""
    return max(trials, key=lambda trial: trial.map)


def grid(
    base: DeepSettings, *, margins: Sequence[float], learning_rates: Sequence[float]
) -> tuple[DeepSettings, ...]:
    """Every margin with every learning rate."""
    return tuple(
        replace(base, margin=margin, learning_rate=rate)
        for margin in margins
        for rate in learning_rates
    )
