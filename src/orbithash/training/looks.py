"""All there is to see of each training image, of which every batch draws one look."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor


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
