"""A hash head with two paths: a linear code of every image, and the code of the class it resembles.

A head that is trained by labels alone learns to name the classes: it loses what distinguishes the
images of a class, and classes that it was not trained on. Here the linear path describes any image;
the other path adds the code of a known class, as far as the image resembles it.
"""

import copy

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from orbithash.networks.second_path import identity_matrix, power_normalized

THRESHOLD = 0.1  # cosine from which on an image rather belongs to a class than to none
CONFIDENCE = 0.7  # mean resemblance to its nearest class of an image that its prototype left out
# New images resemble their class less than images that trained, for which the codes were learned.
SHARPNESS_FACTOR, CODE_FACTOR = 1.25, 1.5


class ClassCodeHead(nn.Module):
    """Features to embeddings in [0, 1]: sigmoid(linear code + expected code of the class).

    With x the features after a signed square root, normalised and centred:

        linear code      A x + b
        resemblance      p = softmax of sharpness · (cos(W x, prototype) − threshold) over the
                         classes, and of 0 for none of them
        class code       Σ p(class) · code(class)

    W whitens by the scatter within the classes. `fit_start` sets all of it from training features.
    The linear code and the class codes are then trained; the resemblance stays as it is, because
    training it on a few images per class makes it wrong for new ones. After training, class codes
    count 1.5 times, and the sharpness is higher: both make up for what new images lack.
    """

    center: Tensor
    whitening: Tensor
    prototypes: Tensor
    sharpness: Tensor

    def __init__(self, n_features: int, n_bits: int, n_classes: int) -> None:
        super().__init__()
        self.n_features, self.n_bits, self.n_classes = n_features, n_bits, n_classes
        self.register_buffer("center", torch.zeros(n_features))
        self.register_buffer("whitening", identity_matrix(n_features))
        self.register_buffer("prototypes", torch.zeros(n_classes, n_features))
        self.register_buffer("sharpness", torch.ones(()))
        self.hash_layer = nn.Linear(n_features, n_bits)
        self.class_codes = nn.Parameter(torch.zeros(n_classes, n_bits))

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
        sharpness, factor = self.sharpness, 1.0
        if not self.training:
            sharpness, factor = SHARPNESS_FACTOR * sharpness, CODE_FACTOR
        cosines = self.directions(x) @ self.prototypes.T
        return linear + factor * (resemblance(cosines, sharpness) @ self.class_codes)

    def normalized(
        self, features: Float[Tensor, "n {self.n_features}"]
    ) -> Float[Tensor, "n {self.n_features}"]:
        return power_normalized(features) - self.center

    def directions(
        self, x: Float[Tensor, "n {self.n_features}"]
    ) -> Float[Tensor, "n {self.n_features}"]:
        return functional.normalize(x @ self.whitening, dim=1)

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
        labels: Int64[Tensor, " n"],
        *,
        center: Float[Tensor, " {self.n_features}"],
        whitening: Float[Tensor, "{self.n_features} {self.n_features}"],
        projection: Float[Tensor, "{self.n_features} {self.n_bits}"],
        n_images: int | None = None,
    ) -> None:
        """Set the weights from training features and a fitted LDA-ITQ.

        The first `n_images` are one view of each image, by default all; others are further views.

        The linear code is that of LDA-ITQ, with a standard deviation of 1 in every bit. A class has
        as its prototype the mean direction of its images, and as its code the bits of their mean
        linear code, as ±1. The sharpness is such that images resemble a class by `CONFIDENCE` in
        the mean, each compared with prototypes that it is no part of.
        """
        self.center.copy_(center)
        self.whitening.copy_(whitening)
        x = self.normalized(features)
        deviations = (x @ projection).std(dim=0, correction=0)
        scaled = projection / torch.where(deviations > 0, deviations, 1)
        self.hash_layer.weight.copy_(scaled.T)
        self.hash_layer.bias.zero_()
        linear_sums = torch.zeros_like(self.class_codes).index_add_(0, labels, x @ scaled)
        self.class_codes.copy_(linear_sums.sign())
        directions = self.directions(x)
        sums = torch.zeros_like(self.prototypes).index_add_(0, labels, directions)
        self.prototypes.copy_(functional.normalize(sums, dim=1))
        self.sharpness.fill_(
            sharpness_of(left_out_cosines(directions[:n_images], labels[:n_images], len(sums)))
        )


def resemblance(
    cosines: Float[Tensor, "n classes"], sharpness: Float[Tensor, ""] | float
) -> Float[Tensor, "n classes"]:
    """Return how much each image resembles each class; the sum over the classes is below 1."""
    scores = sharpness * (cosines - THRESHOLD)
    no_class = torch.zeros_like(scores[:, :1])
    return torch.cat([scores, no_class], dim=1).softmax(dim=1)[:, :-1]


def left_out_cosines(
    directions: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], n_classes: int
) -> Float[Tensor, "n {n_classes}"]:
    """Return the cosines to the mean direction of each class, without the image itself."""
    sums = torch.zeros_like(directions[:1]).repeat(n_classes, 1).index_add_(0, labels, directions)
    cosines = directions @ functional.normalize(sums, dim=1).T
    others = functional.normalize(sums[labels] - directions, dim=1)
    cosines[torch.arange(len(labels)), labels] = (directions * others).sum(dim=1)
    return cosines


def sharpness_of(cosines: Float[Tensor, "n classes"]) -> float:
    """Return the sharpness at which the highest resemblances have the mean `CONFIDENCE`.

    It is between 1 and 256, found by bisection of its logarithm.
    """
    low, high = 0.0, 8.0
    for _ in range(24):
        middle = (low + high) / 2
        confident = resemblance(cosines, 2.0**middle).amax(dim=1).mean() > CONFIDENCE
        low, high = (low, middle) if confident else (middle, high)
    return float(2.0**high)
