"""A linear code of any image, beside the layers of a head that name the classes."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional


class LinearPath(nn.Module):
    """Features to logits by one matrix, added to those of the layers of a head.

    Layers that are trained by labels lose what distinguishes the images of a class, and classes
    that they were not trained on. With x the features after a signed square root, normalised and
    centred, the logits of a head with such a path are

        layers_weight · logits of the layers + A x

    All of it is fitted after the layers have been trained, and none of it is trained:
    `orbithash.training.linear_path` does that.
    """

    center: Tensor
    matrix: Tensor
    layers_weight: Tensor

    def __init__(self, n_features: int, n_bits: int) -> None:
        super().__init__()
        self.n_features, self.n_bits = n_features, n_bits
        self.register_buffer("center", torch.zeros(n_features))
        self.register_buffer("matrix", torch.zeros(n_bits, n_features))
        self.register_buffer("layers_weight", torch.ones(()))

    def forward(
        self,
        features: Float[Tensor, "n {self.n_features}"],
        logits: Float[Tensor, "n {self.n_bits}"],
    ) -> Float[Tensor, "n {self.n_bits}"]:
        """Return the logits of the layers, weighted, plus the linear code."""
        x = power_normalized(features) - self.center
        return self.layers_weight * logits + x @ self.matrix.T

    def keep_bits(self, n_bits: int) -> None:
        """Keep the first bits alone."""
        self.matrix, self.n_bits = self.matrix[:n_bits].clone(), n_bits


def power_normalized(features: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Return signed square roots, scaled to length 1; large components dominate less."""
    return functional.normalize(features.sign() * features.abs().sqrt(), dim=1)
