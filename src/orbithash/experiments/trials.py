"""Trials of settings on validation rows, for `tune` and the demo: no query is used."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orbithash.data import LabelledFeatures
from orbithash.encoders import Encoder
from orbithash.errors import DivergedError, InputError
from orbithash.training import Hooks, TrainingSettings, train


@dataclass(frozen=True, eq=False)
class Trial:
    """Settings that were tried from several seeds."""

    settings: TrainingSettings
    options: Mapping[str, Any]  # of the method
    encoders: tuple[Encoder, ...]  # by seed; training that diverged gives none
    map: float  # on the validation rows, mean over the seeds


def run_trial(
    data: LabelledFeatures,
    method: str,
    n_bits: int,
    settings: TrainingSettings,
    options: Mapping[str, Any],
    *,
    seeds: Sequence[int],
    backbone: str | None = None,
    hooks: Hooks | None = None,
) -> Trial:
    """Train from each seed, and score the validation rows after the last epoch.

    Validation rows are those of the split, or those that `settings.validation` holds out. Training
    that diverges has the score 0.
    """
    encoders, scores = [], []
    for seed in seeds:
        try:
            encoder = train(
                data,
                n_bits,
                method=method,
                options=options,
                settings=settings,
                backbone=backbone,
                seed=seed,
                hooks=hooks,
                progress=False,
            )
        except DivergedError:
            scores.append(0.0)
            continue
        score = encoder.history[-1].validation_map
        if score is None:
            raise InputError("no training row could be held out; every class needs three or more")
        encoders.append(encoder)
        scores.append(score)
    return Trial(settings, options, tuple(encoders), float(np.mean(scores)))


def best_trial(trials: Sequence[Trial]) -> Trial:
    """Return the trial with the highest validation MAP; the first of equals."""
    return max(trials, key=lambda trial: trial.map)
