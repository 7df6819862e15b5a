"""The second path of a head: fitted to the training features once the layers are trained."""

import math

import numpy as np
import torch
from jaxtyping import Float, Float64, Shaped
from torch import Tensor
from torch.nn import functional

from orbithash.hashers.base import multi_hot
from orbithash.hashers.discriminant_quantization import (
    ROUNDING,
    whitening_matrix,
    within_class_scatter,
)
from orbithash.networks import FeatureHead, SecondPath, power_normalized

MAX_ROWS = 1 << 15  # images to which it is fitted
SHRINKAGE = 0.5  # of the scatter within the classes, as of lda-itq
FEW_CLASSES = 100  # the weights of so many serve fewer classes, whose names may be hard to tell


@torch.no_grad()
def add_second_path(
    head: FeatureHead,
    features: Float[Tensor, "n d"],
    labels: Shaped[np.ndarray, "n *classes"],
    *,
    shortest: int,
) -> None:
    """Fit a second path to the training features, and add it to a head that was trained on them.

    The features are whitened by their scatter within the classes. Their first principal components
    are mapped to bits by the orthogonal map that comes closest to the codes of the layers, so that
    the linear code of an image lies near the codes of the classes that it resembles. It has a
    standard deviation of 1. A class has as its prototype the mean direction of its whitened images,
    and as its code the bits that its images have most often. `shortest` is the shortest length of
    nested codes, or the number of bits: see `path_weights`.

    Features that are all equal have no second path.
    """
    step = -(-len(features) // MAX_ROWS)
    features, labels = features[::step], labels[::step]
    head.eval()
    parts = [head.layers_output(part) for part in torch.split(features, 1024)]
    logits = torch.cat([logits for _, logits in parts])
    X = power_normalized(features).double().numpy()
    center = X.mean(axis=0)
    X -= center
    variance = float(X.var())
    if variance <= ROUNDING:
        return
    members = multi_hot(X, labels)
    whitening = whitening_matrix(
        within_class_scatter(X, members), SHRINKAGE, floor=ROUNDING * variance
    )
    X = X @ whitening
    several_labels = labels.ndim == 2
    # With half as many components as bits, images of new classes are found better, with as many
    # the look is kept better; with several labels, look is what such a path is for.
    n_components = head.n_bits if several_labels else math.ceil(head.n_bits / 2)
    projection = towards_codes(X, np.where(logits.numpy() > 0, 1.0, -1.0), n_components)
    scale = 1 / logits.abs().mean()
    class_weight, layers_weight = path_weights(members.shape[1], shortest, several_labels)

    path = SecondPath(
        head.n_features,
        head.hash_layer.in_features,
        head.n_bits,
        0 if several_labels else members.shape[1],
    )
    path.center.copy_(torch.from_numpy(center))
    path.matrix.copy_(torch.from_numpy((whitening @ projection / (X @ projection).std()).T))
    path.layers_weight.copy_(layers_weight * scale)
    if path.n_classes:
        of_class = torch.from_numpy(members.T.astype(np.float32))
        directions = functional.normalize(torch.from_numpy(X).float(), dim=1)
        codes = (of_class @ (logits / 2).tanh()).sign()
        path.whitening.copy_(torch.from_numpy(whitening))
        path.prototypes.copy_(functional.normalize(of_class @ directions, dim=1))
        path.class_codes.copy_(class_weight * codes)
        mean_over_bits = codes * scale / head.n_bits
        path.agreement.weight.copy_(mean_over_bits @ head.hash_layer.weight)
        path.agreement.bias.copy_(mean_over_bits @ head.hash_layer.bias)
    head.second_path = path


def towards_codes(
    X: Float64[np.ndarray, "n d"], codes: Float64[np.ndarray, "n bits"], n_components: int
) -> Float64[np.ndarray, "d bits"]:
    """Return the projection of centred rows that comes closest to codes of ±1.

    Of the matrices that map the first principal components to bits orthogonally.
    """
    components = np.linalg.eigh(X.T @ X)[1][:, ::-1][:, : min(n_components, *X.shape)]
    # Orthogonal Procrustes.
    U, _, Wt = np.linalg.svd((X @ components).T @ codes, full_matrices=False)
    return np.asarray(components @ U @ Wt)


def path_weights(n_classes: int, n_bits: int, several_labels: bool) -> tuple[float, float]:
    """Return how much the code of the class, and the layers, count beside the linear code.

    The more classes there are for each bit, the more bits are needed to tell them apart. With
    several labels the layers alone name the classes.
    """
    if several_labels:
        return 0.0, 12 / math.sqrt(n_bits)
    classes_per_bit = max(n_classes, FEW_CLASSES) / n_bits
    return 0.2 * classes_per_bit, 0.5 * classes_per_bit
