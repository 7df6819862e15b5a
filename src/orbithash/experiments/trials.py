"""Trials: train with some settings and score validation rows, for `tune` and the demo.

Queries are never used.
"""

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
    """Settings, and the encoders trained with them from several seeds."""

    settings: TrainingSettings
    options: Mapping[str, Any]  # of the method
    encoders: tuple[Encoder, ...]  # in the order of the seeds, without those that diverged
    map: float  # of the last epoch on the validation rows, mean over the seeds


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

    Validation rows are those of the split, or those that `settings.validation` holds out. A run
    that diverges scores 0. The encoders hold the weights of their best epoch, as `train` returns
    them, which need not be the last one.
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
        score = encoder.history[-1].validation_map  # the last epoch is always validated
        if score is None:
            raise InputError(
                "there are no validation rows; give a split that has some, or set `validation` "
                "above 0 and give at least one class of three training rows or more"
            )
        encoders.append(encoder)
        scores.append(score)
    return Trial(settings, options, tuple(encoders), float(np.mean(scores)))


def best_trial(trials: Sequence[Trial]) -> Trial:
    """Return the trial with the highest validation MAP; on ties, the first one."""
    return max(trials, key=lambda trial: trial.map)
