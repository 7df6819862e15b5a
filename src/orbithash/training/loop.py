"""The training loop. It knows no method: a loss is any module called with embeddings and labels."""

import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from orbithash.errors import InputError
from orbithash.training.best import BestEpoch
from orbithash.training.memory import Memory
from orbithash.training.optimization import make_optimizer, scheduled_rate
from orbithash.training.settings import TrainingSettings
from orbithash.training.tally import Tally

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
    active_share: float | None = None  # of the triplets within the margin, if the loss has any
    bit_balance: float = 0.0  # 1: every bit is set for half of the images; 0: all bits are constant
    validation_map: float | None = None  # in the epochs that were validated
    seconds: float = 0.0


def train(
    network: nn.Module,
    loss: nn.Module,
    images: Float[Tensor, "n ..."],
    labels: Tensor,
    batches: Batcher,
    settings: TrainingSettings,
    *,
    validate: Callable[[], float] | None = None,
    after_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> list[Epoch]:
    """Train the network in place and return what each epoch did.

    The random start of the network and the batches are the caller's, each with its own seed; what
    layers draw, as dropout does, comes from torch's generator, which the caller seeds too.

    `validate` scores the network as it is, the higher the better. It is asked every few epochs and
    after the last; the network is left as it was when it scored best, and training ends early when
    `patience` scores in a row were no better. `after_epoch` may save or show progress.
    """
    optimizer = make_optimizer([*network.parameters(), *loss.parameters()], settings)
    memory = Memory(settings.memory) if settings.memory else None
    best = BestEpoch(network, patience=settings.patience)
    history = []
    for number in range(settings.epochs):
        started = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = scheduled_rate(settings, number)
        network.train()
        tally = Tally()
        for rows in batches(number):
            batch = torch.from_numpy(rows)
            embeddings = network(images[batch])
            value = batch_loss(loss, embeddings, labels[batch], memory)
            if not math.isfinite(value.item()):
                raise InputError(
                    f"the loss became {value.item()} in epoch {number} at learning rate "
                    f"{scheduled_rate(settings, number):g}; train with a lower rate"
                )
            optimizer.zero_grad()
            value.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            tally.add(loss, value, embeddings)

        last = number + 1 == settings.epochs
        score = None
        if validate is not None and (last or (number + 1) % settings.validate_every == 0):
            score = validate()
            best.offer(score)
        epoch = Epoch(
            number=number,
            loss=tally.mean_loss(),
            learning_rate=scheduled_rate(settings, number),
            active_share=tally.active_share(),
            bit_balance=tally.bit_balance(),
            validation_map=score,
            seconds=time.perf_counter() - started,
        )
        logger.info("epoch %d: loss %.4g", epoch.number, epoch.loss)
        history.append(epoch)
        after_epoch(epoch)
        if best.exhausted():
            break
    best.restore()
    return history


def batch_loss(
    loss: nn.Module, embeddings: Float[Tensor, "n bits"], labels: Tensor, memory: Memory | None
) -> Float[Tensor, ""]:
    if memory is None or memory.embeddings is None:
        value: Tensor = loss(embeddings, labels)
    else:
        value = loss(embeddings, labels, ref_emb=memory.embeddings, ref_labels=memory.labels)
    if memory is not None:
        memory.add(embeddings, labels)
    return value
