"""What training needs whatever it trains on: the loss, who is held out, and the batches."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64
from torch import nn

from orbithash.data import (
    ClassBalancedBatches,
    ShuffledBatches,
    batches_by_labels,
    check_trainable,
    hold_out,
)
from orbithash.training.methods import check_memory, make_loss
from orbithash.training.settings import TrainingSettings

# Queries' codes, database's codes, their labels, and the number of bits: the higher the better.
Score = Callable[..., float]

Labels = Int64[np.ndarray, " n"] | Bool[np.ndarray, "n classes"]


@dataclass(frozen=True, eq=False)
class Preparation:
    """A loss, and which of the training images train and which validate, by position."""

    loss: nn.Module
    labels: Labels  # from 0 on, whatever the classes are called
    rest: Int64[np.ndarray, " rest"]
    held_out: Int64[np.ndarray, " held_out"]
    batches: ClassBalancedBatches | ShuffledBatches  # of positions in `rest`


def prepare(
    labels: Labels,
    method: str,
    n_bits: int,
    settings: TrainingSettings,
    *,
    options: Mapping[str, Any],
    seed: int,
    classes: Sequence[str] | None = None,
) -> Preparation:
    """Everything that follows from the labels of the training images, the method and the seed."""
    check_trainable(labels, classes)
    if labels.ndim == 1:
        labels = np.unique(labels, return_inverse=True)[1]
    loss = make_loss(
        method,
        options,
        n_bits=n_bits,
        n_classes=labels.shape[1] if labels.ndim == 2 else int(labels.max()) + 1,
        seed=seed,
        reduction=settings.reduction,
    )
    if settings.memory:
        check_memory(loss, method)
    rest, held_out = hold_out(labels, settings.validation, seed=seed)
    batches = batches_by_labels(
        labels[rest],
        batch_size=settings.batch_size,
        images_per_class=settings.images_per_class,
        seed=seed,
    )
    return Preparation(loss, labels, rest, held_out, batches)


def run_settings(
    method: str, n_bits: int, settings: TrainingSettings, options: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """What a run depends on besides its data and its start, by name."""
    return asdict(settings) | dict(options) | {"method": method, "bits": n_bits, "seed": seed}
