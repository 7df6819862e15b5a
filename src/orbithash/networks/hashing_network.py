"""A backbone with a hash head."""

from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbithash.errors import InputError
from orbithash.networks.backbones import PhotoBackbone
from orbithash.networks.feature_head import FeatureHead


@runtime_checkable
class Backbone(Protocol):
    """A module that maps each image of a batch to `n_features` numbers."""

    n_features: int

    def __call__(
        self, images: Float[Tensor, "n channels height width"]
    ) -> Float[Tensor, "n features"]: ...


class HashingNetwork(nn.Module):
    """Images to embeddings in [0, 1]: a backbone and a `FeatureHead`.

    Chen et al., "Improving Deep Binary Embedding Networks by Order-aware Reweighting of Triplets",
    2018, use GoogLeNet as the backbone and no hidden layer: a fully connected layer and a sigmoid.

    With `freeze_statistics`, batch normalisation keeps the means and variances of its weights in
    training too. They are better than those of a small batch, and images do not affect each other.
    """

    def __init__(
        self,
        backbone: nn.Module,
        n_bits: int,
        *,
        hidden: int = 0,
        dropout: float = 0.3,
        freeze_statistics: bool = False,
    ) -> None:
        super().__init__()
        self.freeze_statistics = freeze_statistics
        if not isinstance(backbone, Backbone):
            raise InputError(
                f"{type(backbone).__name__} has no attribute n_features, the number of features it "
                "outputs; give it one"
            )
        self.backbone: nn.Module = backbone
        self.head = FeatureHead(backbone.n_features, n_bits, hidden=hidden, dropout=dropout)

    def forward(
        self, images: Float[Tensor, "n channels height width"]
    ) -> Float[Tensor, "n {self.head.n_bits}"]:
        embeddings: Tensor = self.head(self.backbone(images))
        return embeddings

    def train(self, mode: bool = True) -> "HashingNetwork":
        """Set the training mode, of batch normalisation only if its statistics are not frozen."""
        super().train(mode)
        if self.freeze_statistics:
            for module in self.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self

    def description(self) -> dict[str, Any]:
        """Return what rebuilds the network without its weights, for JSON."""
        backbone = self.backbone
        assert isinstance(backbone, PhotoBackbone)
        return {
            "backbone": backbone.registry_name(),
            "arguments": backbone.arguments,
            "n_bits": self.head.n_bits,
            "hidden": self.head.hidden,
            "dropout": self.head.dropout,
        }


def network_weights(network: nn.Module) -> dict[str, np.ndarray]:
    """Return each weight as a contiguous array, whatever its memory layout."""
    return {
        name: weight.detach().cpu().contiguous().numpy()
        for name, weight in network.state_dict().items()
    }


@torch.inference_mode()
def embed(
    network: nn.Module,
    inputs: Float[Tensor, "n channels height width"] | Float[Tensor, "n features"],
    *,
    batch_size: int = 1024,
) -> Float[Tensor, "n bits"]:
    """Return the embeddings of all images or features, computed in evaluation mode."""
    was_training = network.training
    network.eval()
    try:
        return torch.cat([network(batch) for batch in torch.split(inputs, batch_size)])
    finally:
        network.train(was_training)
