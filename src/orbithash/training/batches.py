"""The batches of the loop from tensors in memory, with one or several views of each image."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor

from orbithash.training.distributed import ALONE, Processes


@dataclass(frozen=True, eq=False)
class Looks:
    """Inputs of images; those of one image are consecutive, the one that is encoded first."""

    inputs: Float[Tensor, "looks ..."]
    first: Int64[np.ndarray, " n"]
    count: Int64[np.ndarray, " n"]
    seed: int = 0

    def draw(
        self, positions: Int64[np.ndarray, " batch"], epoch: int, batch: int
    ) -> Float[Tensor, "batch ..."]:
        """One look at each of these images, by chance; the same whenever asked again."""
        rng = np.random.default_rng([self.seed, epoch, batch])
        offsets = (rng.random(len(positions)) * self.count[positions]).astype(np.int64)
        return self.inputs[torch.from_numpy(self.first[positions] + offsets)]


def only_look(inputs: Float[Tensor, "n ..."]) -> Looks:
    """One look at each image."""
    return Looks(inputs, np.arange(len(inputs)), np.ones(len(inputs), dtype=np.int64))


def several_looks(
    inputs: Float[Tensor, "n d"],
    views: Float[Tensor, "v d"],
    view_of: Int64[np.ndarray, " v"],
    *,
    seed: int,
) -> Looks:
    """The images and their further views; `view_of` names the position of each view's image."""
    owners = np.concatenate([np.arange(len(inputs)), view_of])
    order = np.argsort(owners, kind="stable")  # so each image stays before its views
    count = np.bincount(owners, minlength=len(inputs))
    return Looks(
        torch.cat([inputs, views])[torch.from_numpy(order)], np.cumsum(count) - count, count, seed
    )


@runtime_checkable
class Batcher(Protocol):
    """Yields the row positions of each batch of an epoch; the same ones whenever asked again."""

    def __len__(self) -> int: ...

    def __call__(self, epoch: int) -> Iterator[Int64[np.ndarray, " batch"]]: ...


@dataclass(frozen=True, eq=False)
class Batch:
    """What a network is shown in one step, and what is on it."""

    inputs: Float[Tensor, "n ..."]
    labels: Shaped[Tensor, "n *classes"]


@runtime_checkable
class BatchSource(Protocol):
    """The batches of an epoch from number `first` on; the same ones whenever asked again.

    Of several processes that train together each gets its own share of every batch.
    """

    def __len__(self) -> int: ...

    def __call__(self, epoch: int, first: int = 0) -> Iterator[Batch]: ...


@dataclass(frozen=True, eq=False)
class TensorBatches:
    """Batches of what is held in memory; `batches` names positions in `looks`."""

    looks: Looks
    labels: Shaped[Tensor, "n *classes"]
    batches: Batcher
    processes: Processes = ALONE

    def __len__(self) -> int:
        return len(self.batches)

    def __call__(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        for number, rows in islice(enumerate(self.batches(epoch)), first, None):
            share = self.processes.share(len(rows))
            inputs = self.looks.draw(rows, epoch, number)[share]
            yield Batch(inputs, self.labels[torch.from_numpy(rows[share])])
