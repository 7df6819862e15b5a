"""The optimizer, and its learning rate in each epoch and step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from orbithash.training.settings import TrainingSettings

EPOCHS_PER_STEP = 50


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters with the same learning rate."""

    parameters: tuple[nn.Parameter, ...]
    rate: float = 1.0  # factor of the scheduled learning rate
    decays: bool = True


def make_optimizer(
    groups: Sequence[ParameterGroup], settings: TrainingSettings
) -> torch.optim.Optimizer:
    rate, decay = settings.learning_rate, settings.weight_decay
    described = [
        {
            "params": list(group.parameters),
            "lr": rate * group.rate,
            "times": group.rate,
            "weight_decay": decay if group.decays else 0.0,
        }
        for group in groups
        if group.parameters
    ]
    if settings.optimizer == "sgd":
        return torch.optim.SGD(described, momentum=settings.momentum, fused=True)
    # Decoupled weight decay: otherwise its strength would depend on the scale of the loss.
    return torch.optim.AdamW(described, fused=True)


def fine_tuning_groups(
    backbone: nn.Module, head: nn.Module, settings: TrainingSettings
) -> list[ParameterGroup]:
    """Return groups for the backbone and for the faster head, with weights and biases apart."""
    return [
        ParameterGroup(
            tuple(p for p in module.parameters() if (p.ndim > 1) == is_weight),
            rate=rate * (1.0 if is_weight else settings.bias_rate),
            decays=is_weight,
        )
        for module, rate in ((backbone, 1.0), (head, settings.new_layer_rate))
        for is_weight in (True, False)
    ]


def scheduled_rate(settings: TrainingSettings, epoch: int) -> float:
    """Return the learning rate of an epoch: half a cosine to 0, or divided by 10 every 50 epochs.

    >>> [scheduled_rate(TrainingSettings(epochs=2, learning_rate=1.0), epoch) for epoch in (0, 1)]
    [1.0, 0.5]
    >>> scheduled_rate(TrainingSettings(learning_rate=1.0, schedule="steps"), 50)
    0.1
    """
    if settings.schedule == "steps":
        return settings.learning_rate / 10.0 ** (epoch // EPOCHS_PER_STEP)
    return settings.learning_rate * (1 + math.cos(math.pi * epoch / settings.epochs)) / 2


def warmed_up(rate: float, steps: int, warmup_steps: float) -> float:
    """Return the rate of step number `steps`, from 0: it grows linearly during warm-up.

    >>> [warmed_up(1.0, step, warmup_steps=4) for step in range(6)]
    [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    """
    return rate * min(1.0, (steps + 1) / warmup_steps) if warmup_steps else rate


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate * group["times"]
