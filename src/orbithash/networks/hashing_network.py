"""A backbone and the layer that outputs the bits."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbithash.errors import InputError
from orbithash.networks.feature_head import SPREAD


@runtime_checkable
class Backbone(Protocol):
    """A module that turns a batch of images into `n_features` numbers each."""

    n_features: int

    def __call__(
        self, images: Float[Tensor, "n channels height width"]
    ) -> Float[Tensor, "n features"]: ...


class HashingNetwork(nn.Module):
    """Images to embeddings in [0, 1]: a backbone, a fully connected layer, a sigmoid.

    Chen et al., "Improving Deep Binary Embedding Networks by Order-aware Reweighting of Triplets",
    2018, use GoogLeNet as the backbone.
    """

    def __init__(self, backbone: nn.Module, n_bits: int) -> None:
        super().__init__()
        if not isinstance(backbone, Backbone):
            raise InputError(
                f"{type(backbone).__name__} does not say how many features it outputs; "
                "give it an attribute n_features"
            )
        self.backbone: nn.Module = backbone
        self.hash_layer = nn.Linear(backbone.n_features, n_bits)

    def forward(
        self, images: Float[Tensor, "n channels height width"]
    ) -> Float[Tensor, "n {self.hash_layer.out_features}"]:
        embeddings: Tensor = self.hash_layer(self.backbone(images)).sigmoid()
        return embeddings

    @torch.no_grad()
    def fit_start(self, embeddings: Float[Tensor, "n {self.hash_layer.out_features}"]) -> None:
        """Fit the hash layer's random start to the embeddings that it gives some images.

        Every bit starts as a random half of them, with sums of the same spread. As drawn, some
        bits are the same for all images, and the first steps make that worse.
        """
        sums = embeddings.logit(eps=1e-6).to(self.hash_layer.weight)
        mean, spread = sums.mean(dim=0), sums.std(dim=0, correction=0)
        factors = torch.where(spread > 0, SPREAD / spread, 1)
        self.hash_layer.weight.mul_(factors[:, None])
        self.hash_layer.bias.sub_(mean).mul_(factors)


@torch.inference_mode()
def embed(
    network: nn.Module,
    inputs: Float[Tensor, "n channels height width"] | Float[Tensor, "n features"],
    *,
    batch_size: int = 1024,
) -> Float[Tensor, "n bits"]:
    """The embeddings of all images, or features, as the network gives them when not training."""
    was_training = network.training
    network.eval()
    try:
        return torch.cat([network(batch) for batch in torch.split(inputs, batch_size)])
    finally:
        network.train(was_training)
