"""A memory of recent embeddings: rank lists longer than a batch at the price of none."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor


class Memory:
    """The last `size` embeddings with their labels, the oldest forgotten first.

    They are as the network gave them when they were new, so some steps out of date, and constants:
    no gradient flows into them. A size of 0 remembers nothing.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.embeddings: Float[Tensor, "m bits"] | None = None
        self.labels: Tensor | None = None

    def add(self, embeddings: Float[Tensor, "n bits"], labels: Tensor) -> None:
        if not self.size:
            return
        embeddings = embeddings.detach()
        if self.embeddings is not None and self.labels is not None:
            embeddings = torch.cat([self.embeddings, embeddings])
            labels = torch.cat([self.labels, labels])
        # Copies, or the whole of what is forgotten would stay in memory with what is kept.
        self.embeddings = embeddings[-self.size :].clone()
        self.labels = labels[-self.size :].clone()

    def tensors(self) -> dict[str, Tensor]:
        if self.embeddings is None or self.labels is None:
            return {}
        return {"embeddings": self.embeddings, "labels": self.labels}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Become what `tensors` were taken from."""
        self.embeddings, self.labels = tensors.get("embeddings"), tensors.get("labels")
