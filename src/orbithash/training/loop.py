"""The training loop. It knows no method: a loss is any module called with embeddings and labels."""

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from orbithash.errors import InputError
from orbithash.training.settings import TrainingSettings

logger = logging.getLogger(__name__)


@runtime_checkable
class Batcher(Protocol):
    """Yields the row positions of each batch of an epoch; the same ones whenever asked again."""

    def __call__(self, epoch: int) -> Iterator[Int64[np.ndarray, " batch"]]: ...


@dataclass(frozen=True)
class Epoch:
    """What one pass over the training images did."""

    number: int  # from 0
    loss: float  # mean over the batches
    learning_rate: float


def train(
    network: nn.Module,
    loss: nn.Module,
    images: Float[Tensor, "n ..."],
    labels: Tensor,
    batches: Batcher,
    settings: TrainingSettings,
    *,
    after_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> list[Epoch]:
    """Train the network in place and return what each epoch did.

    The random start of the network and the batches are the caller's, each with its own seed; the
    loop itself draws nothing. `after_epoch` may score, save or show progress.
    """
    optimizer = torch.optim.Adam(
        network.parameters(),
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        fused=True,
    )
    network.train()
    history = []
    for number in range(settings.epochs):
        learning_rate = scheduled_rate(settings, number)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate

        losses = []
        for rows in batches(number):
            batch = torch.from_numpy(rows)
            value = loss(network(images[batch]), labels[batch])
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            losses.append(value.item())

        epoch = Epoch(number, float(np.mean(losses)), learning_rate)
        if not math.isfinite(epoch.loss):
            raise InputError(
                f"the loss became {epoch.loss} in epoch {number} at learning rate "
                f"{learning_rate:g}; train with a lower rate"
            )
        logger.info("epoch %d: loss %.4g", epoch.number, epoch.loss)
        history.append(epoch)
        after_epoch(epoch)
    return history


def scheduled_rate(settings: TrainingSettings, epoch: int) -> float:
    """Half a cosine from the full rate in the first epoch down towards 0 after the last.

    >>> [scheduled_rate(TrainingSettings(epochs=2, learning_rate=1.0), epoch) for epoch in (0, 1)]
    [1.0, 0.5]
    """
    return settings.learning_rate * (1 + math.cos(math.pi * epoch / settings.epochs)) / 2
