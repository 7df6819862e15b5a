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


@runtime_checkable
class Batcher(Protocol):
    """Yields the row positions of each batch of an epoch, the same ones at every call."""

    def __len__(self) -> int: ...

    def __call__(self, epoch: int) -> Iterator[Int64[np.ndarray, " batch"]]: ...


@dataclass(frozen=True, eq=False)
class Batch:
    """The inputs and labels of one training step."""

    inputs: Float[Tensor, "n ..."]
    labels: Shaped[Tensor, "n *classes"]


@runtime_checkable
class BatchSource(Protocol):
    """Yields the batches of an epoch from number `first` on, the same ones at every call.

    With several processes, each gets its own share of every batch.
    """

    def __len__(self) -> int: ...

    def __call__(self, epoch: int, first: int = 0) -> Iterator[Batch]: ...


@dataclass(frozen=True, eq=False)
class InputViews:
    """Inputs of all views; the views of one image are consecutive, its encoded view first."""

    inputs: Float[Tensor, "views ..."]
    first: Int64[np.ndarray, " n"]  # position of each image's first view
    count: Int64[np.ndarray, " n"]  # number of its views
    seed: int = 0

    def draw(
        self, positions: Int64[np.ndarray, " batch"], epoch: int, batch: int
    ) -> Float[Tensor, "batch ..."]:
        """Return a random view of each of these images, the same one at every call."""
        rng = np.random.default_rng([self.seed, epoch, batch])
        offsets = (rng.random(len(positions)) * self.count[positions]).astype(np.int64)
        return self.inputs[torch.from_numpy(self.first[positions] + offsets)]


def single_views(inputs: Float[Tensor, "n ..."]) -> InputViews:
    """Return one view of each image."""
    return InputViews(inputs, np.arange(len(inputs)), np.ones(len(inputs), dtype=np.int64))


def several_views(
    inputs: Float[Tensor, "n d"],
    views: Float[Tensor, "v d"],
    view_of: Int64[np.ndarray, " v"],
    *,
    seed: int,
) -> InputViews:
    """Return the images with further views; `view_of` is the position of each view's image."""
    owners = np.concatenate([np.arange(len(inputs)), view_of])
    order = np.argsort(owners, kind="stable")  # so each image stays before its views
    count = np.bincount(owners, minlength=len(inputs))
    return InputViews(
        torch.cat([inputs, views])[torch.from_numpy(order)], np.cumsum(count) - count, count, seed
    )


@dataclass(frozen=True, eq=False)
class TensorBatches:
    """Batches of inputs in memory; `batches` yields positions in `views`."""

    views: InputViews
    labels: Shaped[Tensor, "n *classes"]
    batches: Batcher
    processes: Processes = ALONE

    def __len__(self) -> int:
        return len(self.batches)

    def __call__(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        for number, rows in islice(enumerate(self.batches(epoch)), first, None):
            share = self.processes.share(len(rows))
            inputs = self.views.draw(rows, epoch, number)[share]
            yield Batch(inputs, self.labels[torch.from_numpy(rows[share])])
