"""What is counted over the batches of an epoch."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn


@runtime_checkable
class CountsTriplets(Protocol):
    """A loss that can say how many triplets its last batch had, and which share was active."""

    active_share: float  # of them within the margin
    n_triplets: int


class Tally:
    """Means over an epoch: of the loss, of the active triplets, and of every bit."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.active: list[float] = []
        self.n_images = 0
        self.n_triplets: int | None = None  # as far as the loss counts them
        self.ones: Tensor | None = None  # how many images have each bit

    def add(self, loss: nn.Module, value: Tensor, embeddings: Float[Tensor, "n bits"]) -> None:
        self.losses.append(value.item())
        if isinstance(loss, CountsTriplets):
            self.active.append(loss.active_share)
            self.n_triplets = (self.n_triplets or 0) + loss.n_triplets
        ones = (embeddings.detach() > 0.5).sum(dim=0).cpu()
        self.ones = ones if self.ones is None else self.ones + ones
        self.n_images += len(embeddings)

    def tensors(self) -> dict[str, Tensor]:
        return {} if self.ones is None else {"ones": self.ones}

    def values(self) -> dict[str, Any]:
        return {
            "losses": self.losses,
            "active": self.active,
            "n_images": self.n_images,
            "n_triplets": self.n_triplets,
        }

    def restore(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Become what `tensors` and `values` were taken from."""
        self.ones = tensors.get("ones")
        self.losses, self.active = list(values["losses"]), list(values["active"])
        self.n_images = values["n_images"]
        self.n_triplets = values.get("n_triplets")  # not in checkpoints of earlier versions

    def mean_loss(self) -> float:
        return sum(self.losses) / len(self.losses)

    def active_share(self) -> float | None:
        return sum(self.active) / len(self.active) if self.active else None

    def bit_balance(self) -> float:
        """1 when every bit is set for half of the images, 0 when none tells any two apart."""
        if self.ones is None:
            return 0.0
        return float(1 - (2 * self.ones / self.n_images - 1).abs().mean())
