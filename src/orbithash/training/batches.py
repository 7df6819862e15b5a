"""Where the loop's batches come from: tensors in memory here, image files in `image_batches`."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor

from orbithash.training.distributed import ALONE, Processes
from orbithash.training.looks import Looks


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
