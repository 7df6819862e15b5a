"""A second path beside the layers of a head: what any image looks like, and what it resembles."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

PROTOTYPE_SHARPNESS = 24.0  # of the cosine to a prototype
LAYERS_SHARPNESS = 12.0  # of the agreement of the layers with the code of a class
NO_CLASS = 9.6  # what both have to exceed for an image to rather belong to a class than to none


class SecondPath(nn.Module):
    """Adds a linear code of any image, and the expected code of its class, to the logits of layers.

    Layers that are trained by labels lose what distinguishes the images of a class, and classes
    that they were not trained on. With x the features after a signed square root, normalised and
    centred, the logits of a head with two paths are

        layers_weight · logits of the layers + A x + Σ p(class) · code(class)

    where p is the softmax, over the classes and 0 for none of them, of

        24 · cos(W x, prototype) + 12 · agreement − 9.6

    W whitens by the scatter within the classes. The agreement is the mean over the bits of the
    layers' logits, of mean size 1, times the code of the class, ±1. So a fitted metric and the
    trained layers choose the class together, and an image that resembles no class keeps its linear
    code. Without `n_classes`, for several labels per image, p is left out.

    Nothing of it is trained: `orbithash.training.heads.second_path` fits it once the layers are.
    """

    center: Tensor
    matrix: Tensor
    layers_weight: Tensor
    whitening: Tensor
    prototypes: Tensor
    class_codes: Tensor

    def __init__(self, n_features: int, n_hidden: int, n_bits: int, n_classes: int = 0) -> None:
        super().__init__()
        self.n_features, self.n_hidden = n_features, n_hidden
        self.n_bits, self.n_classes = n_bits, n_classes
        self.register_buffer("center", torch.zeros(n_features))
        self.register_buffer("matrix", torch.zeros(n_bits, n_features))
        self.register_buffer("layers_weight", torch.ones(()))
        if n_classes:
            self.register_buffer("whitening", identity_matrix(n_features))
            self.register_buffer("prototypes", torch.zeros(n_classes, n_features))
            self.register_buffer("class_codes", torch.zeros(n_classes, n_bits))
            # Of hidden units: the codes of a prefix are the first bits of the whole codes.
            self.agreement = nn.Linear(n_hidden, n_classes)

    def forward(
        self,
        features: Float[Tensor, "n {self.n_features}"],
        hidden: Float[Tensor, "n {self.n_hidden}"],
        logits: Float[Tensor, "n {self.n_bits}"],
    ) -> Float[Tensor, "n {self.n_bits}"]:
        """Return the logits of both paths, given the hidden units and logits of the layers."""
        x = power_normalized(features) - self.center
        both = self.layers_weight * logits + x @ self.matrix.T
        if self.n_classes:
            both = both + self.resemblance(x, hidden) @ self.class_codes
        return both

    def resemblance(
        self,
        x: Float[Tensor, "n {self.n_features}"],
        hidden: Float[Tensor, "n {self.n_hidden}"],
    ) -> Float[Tensor, "n {self.n_classes}"]:
        """Return how much each image resembles each class; the sum over the classes is below 1."""
        cosines = functional.normalize(x @ self.whitening, dim=1) @ self.prototypes.T
        agreement: Tensor = self.agreement(hidden)
        scores = PROTOTYPE_SHARPNESS * cosines + LAYERS_SHARPNESS * agreement - NO_CLASS
        no_class = torch.zeros_like(scores[:, :1])
        return torch.cat([scores, no_class], dim=1).softmax(dim=1)[:, :-1]

    def keep_bits(self, n_bits: int) -> None:
        """Keep the first bits alone."""
        self.matrix, self.n_bits = self.matrix[:n_bits].clone(), n_bits
        if self.n_classes:
            self.class_codes = self.class_codes[:, :n_bits].clone()


def identity_matrix(n: int) -> Float[Tensor, "n n"]:
    # Not by torch.eye: on the meta device, as when a run is read, it imports for seconds.
    return torch.zeros(n, n).fill_diagonal_(1)


def power_normalized(features: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Return signed square roots, scaled to length 1; large components dominate less."""
    return functional.normalize(features.sign() * features.abs().sqrt(), dim=1)
