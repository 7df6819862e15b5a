"""The best epoch by validation, and when to stop waiting for a better one."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn


class BestEpoch:
    """Keeps the weights that scored best; without any score, the network is left as it is."""

    def __init__(self, network: nn.Module, *, patience: int) -> None:
        self.network, self.patience = network, patience
        self.score = -math.inf
        self.worse_since = 0  # scores in a row that were no better
        self.weights: dict[str, Tensor] = {}

    def offer(self, score: float) -> None:
        if score > self.score:
            self.score, self.worse_since = score, 0
            self.weights = {
                name: weight.clone() for name, weight in self.network.state_dict().items()
            }
        else:
            self.worse_since += 1

    def exhausted(self) -> bool:
        return self.worse_since >= self.patience

    def restore(self) -> None:
        if self.weights:
            self.network.load_state_dict(self.weights)

    def tensors(self) -> dict[str, Tensor]:
        return self.weights

    def values(self) -> dict[str, Any]:
        return {"score": self.score, "worse_since": self.worse_since}

    def restore_from(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Become what `tensors` and `values` were taken from."""
        self.weights = dict(tensors)
        self.score, self.worse_since = values["score"], values["worse_since"]
