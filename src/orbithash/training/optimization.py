"""Which step follows a gradient: the optimizer, and its rate in each epoch."""

import math
from collections.abc import Iterable

import torch
from torch import nn

from orbithash.training.settings import TrainingSettings

EPOCHS_PER_STEP = 50


def make_optimizer(
    parameters: Iterable[nn.Parameter], settings: TrainingSettings
) -> torch.optim.Optimizer:
    rate, decay = settings.learning_rate, settings.weight_decay
    if settings.optimizer == "sgd":
        return torch.optim.SGD(
            parameters, lr=rate, momentum=settings.momentum, weight_decay=decay, fused=True
        )
    # Decay apart from the gradient: else it would depend on the scale of a loss how much it counts.
    return torch.optim.AdamW(parameters, lr=rate, weight_decay=decay, fused=True)


def scheduled_rate(settings: TrainingSettings, epoch: int) -> float:
    """The rate of an epoch: half a cosine towards 0 after the last, or a tenth every 50 epochs.

    >>> [scheduled_rate(TrainingSettings(epochs=2, learning_rate=1.0), epoch) for epoch in (0, 1)]
    [1.0, 0.5]
    >>> scheduled_rate(TrainingSettings(learning_rate=1.0, schedule="steps"), 50)
    0.1
    """
    if settings.schedule == "steps":
        return settings.learning_rate / 10.0 ** (epoch // EPOCHS_PER_STEP)
    return settings.learning_rate * (1 + math.cos(math.pi * epoch / settings.epochs)) / 2
