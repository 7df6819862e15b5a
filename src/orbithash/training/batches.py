"""Where the loop's batches come from: rows of a tensor here, image files in `image_batches`."""

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
    """Batches of what is in memory: features, or tiny images."""

    inputs: Float[Tensor, "n ..."]
    labels: Shaped[Tensor, "n *classes"]
    batches: Batcher
    processes: Processes = ALONE

    def __len__(self) -> int:
        return len(self.batches)

    def __call__(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        for rows in islice(self.batches(epoch), first, None):
            share = torch.from_numpy(rows[self.processes.share(len(rows))])
            yield Batch(self.inputs[share], self.labels[share])
