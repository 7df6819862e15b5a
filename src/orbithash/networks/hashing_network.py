"""The networks that are trained: a hash head on features, or a backbone with such a head."""

import copy
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbithash.errors import InputError
from orbithash.networks.backbones import PhotoBackbone
from orbithash.networks.class_code_head import ClassCodeHead
from orbithash.networks.second_path import SecondPath

LOGIT_STD = 2.0  # of every bit at the start: outputs are neither all near 0.5 nor saturated
MAX_ROWS_TO_FIT = 1 << 16  # more than enough for a mean and a standard deviation


class FeatureHead(nn.Module):
    """Features to embeddings in [0, 1]: an optional hidden layer, a linear layer and a sigmoid.

    Without a hidden layer this is the last layer of Chen et al., 2018. A hidden layer is followed
    by layer normalisation (Ba, Kiros and Hinton, 2016), ReLU and dropout. With
    `known_classes`, the number of classes or 0 for images with several labels, a `SecondPath` is
    added to the logits of these layers.

    Call `fit_start`, a data-dependent initialisation, before training, so that one learning rate
    suits features of any scale.
    """

    center: Tensor
    scale: Tensor

    def __init__(
        self,
        n_features: int,
        n_bits: int,
        *,
        hidden: int = 1024,
        dropout: float = 0.3,
        known_classes: int | None = None,
    ) -> None:
        super().__init__()
        if hidden < 0 or not 0 <= dropout < 1:
            raise InputError(
                f"hidden={hidden}, dropout={dropout}; hidden must be a number of units (0 for a "
                "linear head), and dropout at least 0 and below 1"
            )
        self.n_features, self.n_bits = n_features, n_bits
        self.hidden, self.dropout = hidden, dropout
        self.register_buffer("center", torch.zeros(n_features))
        self.register_buffer("scale", torch.ones(()))
        self.hidden_layers = nn.Sequential()
        if hidden:
            self.hidden_layers.append(nn.Linear(n_features, hidden))
            self.hidden_layers.append(nn.LayerNorm(hidden))
            self.hidden_layers.append(nn.ReLU())
            self.hidden_layers.append(nn.Dropout(dropout))
        self.hash_layer = nn.Linear(hidden or n_features, n_bits)
        self.second_path: SecondPath | None = None
        if known_classes is not None:
            self.second_path = SecondPath(n_features, hidden or n_features, n_bits, known_classes)

    def forward(
        self, features: Float[Tensor, "n {self.n_features}"]
    ) -> Float[Tensor, "n {self.n_bits}"]:
        # In some runtimes, rounding makes the sigmoid exceed 1.
        return self.logits(features).sigmoid().clamp(0, 1)

    def logits(
        self, features: Float[Tensor, "n {self.n_features}"]
    ) -> Float[Tensor, "n {self.n_bits}"]:
        """Return the values before the sigmoid."""
        hidden, logits = self.layers_output(features)
        if self.second_path is not None:
            logits = self.second_path(features, hidden, logits)
        return logits

    def layers_output(
        self, features: Float[Tensor, "n {self.n_features}"]
    ) -> tuple[Float[Tensor, "n hidden"], Float[Tensor, "n {self.n_bits}"]]:
        """Return the hidden units and the logits of the layers, without the second path."""
        hidden = self.hidden_layers((features - self.center) * self.scale)
        return hidden, self.hash_layer(hidden)

    @property
    def sizes(self) -> dict[str, int | float]:
        """The arguments that make a head of this shape, besides `n_features`."""
        sizes = {"n_bits": self.n_bits, "hidden": self.hidden, "dropout": self.dropout}
        # Left out otherwise: heads are described as they were before.
        if self.second_path is None:
            return sizes
        return {**sizes, "known_classes": self.second_path.n_classes}

    @torch.no_grad()
    def prefix(self, n_bits: int) -> "FeatureHead":
        """Return a copy of the head that outputs the first bits alone."""
        head = copy.deepcopy(self)
        layer = head.hash_layer
        layer.weight = nn.Parameter(layer.weight[:n_bits].clone())
        layer.bias = nn.Parameter(layer.bias[:n_bits].clone())
        head.n_bits = layer.out_features = n_bits
        if head.second_path is not None:
            head.second_path.keep_bits(n_bits)
        return head

    @torch.no_grad()
    def fit_start(
        self, features: Float[Tensor, "n {self.n_features}"], *, spread: bool = True
    ) -> None:
        """Initialise the head from the training features (data-dependent initialisation).

        Features are centred and scaled to an overall standard deviation of 1. With `spread`, the
        logits of every bit are also centred and scaled to the standard deviation `LOGIT_STD`,
        because losses on distances progress slowly from torch's initial logits near 0.

        Large inputs are subsampled, because activations of all rows are held in memory.
        """
        features = features[:: -(-len(features) // MAX_ROWS_TO_FIT)]
        self.center.copy_(features.mean(dim=0))
        deviation = (features - self.center).square().mean().sqrt()
        # Identical features have no scale, but must not become NaN.
        self.scale.copy_(1 / deviation if deviation > 0 else torch.ones(()))
        if not spread:
            return
        was_training = self.training
        deviations = self.eval().logits(features).std(dim=0, correction=0)
        factors = torch.where(deviations > 0, LOGIT_STD / deviations, 1)
        self.hash_layer.weight.mul_(factors[:, None])
        self.hash_layer.bias.sub_(self.logits(features).mean(dim=0))
        self.train(was_training)


def make_head(n_features: int, sizes: Mapping[str, Any]) -> FeatureHead | ClassCodeHead:
    """Return a head of these `sizes`."""
    kind = ClassCodeHead if "n_classes" in sizes else FeatureHead
    return kind(n_features, **sizes)


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
    With `n_classes`, the head is a `ClassCodeHead`; with `known_classes`, it has a
    `SecondPath`.
    """

    def __init__(
        self,
        backbone: nn.Module,
        n_bits: int,
        *,
        hidden: int = 0,
        dropout: float = 0.3,
        n_classes: int | None = None,
        known_classes: int | None = None,
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
        self.head: FeatureHead | ClassCodeHead
        if n_classes is None:
            self.head = FeatureHead(
                backbone.n_features,
                n_bits,
                hidden=hidden,
                dropout=dropout,
                known_classes=known_classes,
            )
        else:
            self.head = ClassCodeHead(backbone.n_features, n_bits, n_classes)

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

    def prefix(self, n_bits: int) -> "HashingNetwork":
        """Return a copy of the network that outputs the first bits alone."""
        network = copy.deepcopy(self)
        network.head = self.head.prefix(n_bits)
        return network

    def description(self) -> dict[str, Any]:
        """Return what rebuilds the network without its weights, for JSON."""
        backbone = self.backbone
        assert isinstance(backbone, PhotoBackbone)
        return {
            "backbone": backbone.registry_name(),
            "arguments": backbone.arguments,
            **self.head.sizes,
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
