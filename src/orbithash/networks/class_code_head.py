"""A hash head with two paths: a linear code of every image, and the code of the class it resembles.

A head that is trained by labels alone learns to name the classes: it loses what distinguishes the
images of a class, and classes that it was not trained on. Here the linear path describes any image;
the other path adds the code of a known class, as far as the image resembles it.
"""

import copy

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

INITIAL_SHARPNESS = 25.0  # factor of cosines before the softmax
INITIAL_THRESHOLD = 0.1  # cosine from which on an image rather belongs to a class than to none
LINEAR_SHARE = 0.3  # of the training steps, in which class codes are left out
GOLDEN_RATIO = (5**0.5 - 1) / 2


class ClassCodeHead(nn.Module):
    """Features to embeddings in [0, 1]: sigmoid(linear code + expected code of the class).

    With x the features after a signed square root, normalised and centred:

        linear code      A x + b
        resemblance      p = softmax of sharpness · (cos(W x, prototype) − threshold) over the
                         classes, and of 0 for none of them
        class code       Σ p(class) · code(class)

    W whitens by the scatter within the classes. In a share of the training steps the class codes
    are left out, so that the linear path is a good code on its own: that of images which resemble
    no class. These steps are spread evenly and the same in every process.

    `fit_start` sets all weights from training features; training continues from there.
    """

    center: Tensor
    whitening: Tensor
    step: Tensor

    def __init__(self, n_features: int, n_bits: int, n_classes: int) -> None:
        super().__init__()
        self.n_features, self.n_bits, self.n_classes = n_features, n_bits, n_classes
        self.register_buffer("center", torch.zeros(n_features))
        self.register_buffer("whitening", torch.eye(n_features))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))  # of training
        self.linear_share = LINEAR_SHARE
        self.hash_layer = nn.Linear(n_features, n_bits)
        self.prototypes = nn.Parameter(torch.zeros(n_classes, n_features))
        self.class_codes = nn.Parameter(torch.zeros(n_classes, n_bits))
        self.sharpness = nn.Parameter(torch.tensor(INITIAL_SHARPNESS))
        self.threshold = nn.Parameter(torch.tensor(INITIAL_THRESHOLD))

    def forward(
        self, features: Float[Tensor, "n {self.n_features}"]
    ) -> Float[Tensor, "n {self.n_bits}"]:
        return self.logits(features).sigmoid().clamp(0, 1)

    def logits(
        self, features: Float[Tensor, "n {self.n_features}"]
    ) -> Float[Tensor, "n {self.n_bits}"]:
        """Return the values before the sigmoid."""
        x = self.normalized(features)
        linear: Tensor = self.hash_layer(x)
        by_class = self.resemblance(x) @ self.class_codes
        # Times 0, not left out: every parameter has a gradient, as several processes need it.
        return linear + (0.0 if self.training and self.is_linear_step() else 1.0) * by_class

    def is_linear_step(self) -> bool:
        """Count a training step; return whether it leaves the class codes out."""
        self.step += 1
        return int(self.step) * GOLDEN_RATIO % 1 < self.linear_share

    def normalized(
        self, features: Float[Tensor, "n {self.n_features}"]
    ) -> Float[Tensor, "n {self.n_features}"]:
        return power_normalized(features) - self.center

    def resemblance(
        self, x: Float[Tensor, "n {self.n_features}"]
    ) -> Float[Tensor, "n {self.n_classes}"]:
        """Return how much each image resembles each class; the sum over the classes is below 1."""
        directions = functional.normalize(x @ self.whitening, dim=1)
        cosines = directions @ functional.normalize(self.prototypes, dim=1).T
        scores = self.sharpness * (cosines - self.threshold)
        no_class = torch.zeros_like(scores[:, :1])
        return torch.cat([scores, no_class], dim=1).softmax(dim=1)[:, :-1]

    @property
    def sizes(self) -> dict[str, int]:
        """The arguments that make a head of this shape, besides `n_features`."""
        return {"n_bits": self.n_bits, "n_classes": self.n_classes}

    @torch.no_grad()
    def prefix(self, n_bits: int) -> "ClassCodeHead":
        """Return a copy of the head that outputs the first bits alone."""
        head = copy.deepcopy(self)
        layer = head.hash_layer
        layer.weight = nn.Parameter(layer.weight[:n_bits].clone())
        layer.bias = nn.Parameter(layer.bias[:n_bits].clone())
        head.class_codes = nn.Parameter(head.class_codes[:, :n_bits].clone())
        head.n_bits = layer.out_features = n_bits
        return head

    @torch.no_grad()
    def fit_start(
        self,
        features: Float[Tensor, "n {self.n_features}"],
        members: Float[Tensor, "n {self.n_classes}"],
        *,
        center: Float[Tensor, " {self.n_features}"],
        whitening: Float[Tensor, "{self.n_features} {self.n_features}"],
        projection: Float[Tensor, "{self.n_features} {self.n_bits}"],
    ) -> None:
        """Set the weights from training features and a fitted LDA-ITQ.

        The linear code is that of LDA-ITQ, with a standard deviation of 1 in every bit. A class has
        as its prototype the mean direction of its images, and as its code the bits of their mean
        linear code, as ±1. `members` is 1 where the image belongs to the class.
        """
        self.center.copy_(center)
        self.whitening.copy_(whitening)
        x = self.normalized(features)
        deviations = (x @ projection).std(dim=0, correction=0)
        scaled = projection / torch.where(deviations > 0, deviations, 1)
        self.hash_layer.weight.copy_(scaled.T)
        self.hash_layer.bias.zero_()
        sizes = members.sum(dim=0)[:, None].clamp(1)
        directions = functional.normalize(x @ whitening, dim=1)
        self.prototypes.copy_(members.T @ directions / sizes)
        self.class_codes.copy_((members.T @ (x @ scaled) / sizes).sign())


def power_normalized(features: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Return signed square roots, scaled to length 1; large components dominate less."""
    return functional.normalize(features.sign() * features.abs().sqrt(), dim=1)
