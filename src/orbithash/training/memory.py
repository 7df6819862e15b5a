"""A memory of recent embeddings: rank lists longer than a batch at the price of none."""

import torch
from jaxtyping import Float
from torch import Tensor


class Memory:
    """The last `size` embeddings with their labels, the oldest forgotten first.

    They are as the network gave them when they were new, so some steps out of date, and constants:
    no gradient flows into them.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.embeddings: Float[Tensor, "m bits"] | None = None
        self.labels: Tensor | None = None

    def add(self, embeddings: Float[Tensor, "n bits"], labels: Tensor) -> None:
        embeddings = embeddings.detach()
        if self.embeddings is not None and self.labels is not None:
            embeddings = torch.cat([self.embeddings, embeddings])
            labels = torch.cat([self.labels, labels])
        # Copies, or the whole of what is forgotten would stay in memory with what is kept.
        self.embeddings = embeddings[-self.size :].clone()
        self.labels = labels[-self.size :].clone()
