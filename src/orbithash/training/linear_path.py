"""The linear path of a head: fitted to the training features once the layers are trained."""

import math

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from orbithash.hashers.base import multi_hot
from orbithash.hashers.discriminant_quantization import (
    ROUNDING,
    whitening_matrix,
    within_class_scatter,
)
from orbithash.networks import FeatureHead, LinearPath, power_normalized

SHRINKAGE = 0.5  # of the scatter within the classes, as of lda-itq
COMPONENTS_PER_BIT = 0.75  # bits that share components are more alike for images that are alike
FEW_CLASSES = 50  # up to as many, the layers have the same weight


@torch.no_grad()
def add_linear_path(
    head: FeatureHead,
    features: Float[Tensor, "n d"],
    labels: Shaped[np.ndarray, "n *classes"],
) -> None:
    """Fit a linear path to the training features, and add it to a head that was trained on them.

    The features are whitened by their scatter within the classes. Their first principal components
    are mapped to bits by the orthogonal map that comes closest to the codes of the layers. So
    where the layers are unsure, the linear code lies near the codes of the classes that are alike.
    The linear logits of training images have a standard deviation of 1, those of the layers a mean
    absolute value of `layers_weight`.

    Features that are all equal have no linear code.
    """
    head.eval()
    logits = torch.cat([head.logits(part) for part in features.split(1024)]).numpy()
    X = power_normalized(features).double().numpy()
    center = X.mean(axis=0)
    X -= center
    variance = float(X.var())
    if variance <= ROUNDING:
        return
    scatter = within_class_scatter(X, multi_hot(X, labels))
    whitening = whitening_matrix(scatter, SHRINKAGE, floor=ROUNDING * variance)
    X = X @ whitening
    components = principal_directions(X, n_components(head.n_bits, *X.shape))
    V = X @ components
    # Orthogonal Procrustes: the map that brings the components closest to the codes.
    U, _, Wt = np.linalg.svd(V.T @ np.where(logits > 0, 1.0, -1.0), full_matrices=False)
    projection = components @ (U @ Wt)
    deviation = (X @ projection).std()
    path = LinearPath(head.n_features, head.n_bits)
    path.center.copy_(torch.from_numpy(center))
    path.matrix.copy_(torch.from_numpy((whitening @ projection / deviation).T))
    n_classes = len(np.unique(labels)) if labels.ndim == 1 else labels.shape[1]
    path.layers_weight.fill_(layers_weight(n_classes, head.n_bits) / float(np.abs(logits).mean()))
    head.linear_path = path.to(head.center.device)


def layers_weight(n_classes: int, n_bits: int) -> float:
    """Return how much the layers count beside the linear code.

    The more classes there are for each bit, the more bits are needed to tell them apart.
    """
    return 2 * math.sqrt(max(n_classes, FEW_CLASSES) / n_bits)


def n_components(n_bits: int, n_images: int, n_features: int) -> int:
    return min(math.ceil(COMPONENTS_PER_BIT * n_bits), n_images, n_features)


def principal_directions(X: Float[np.ndarray, "n d"], n: int) -> Float[np.ndarray, "d {n}"]:
    """Return the n orthonormal directions of the highest variance, of centred rows."""
    return np.asarray(np.linalg.eigh(X.T @ X)[1][:, ::-1][:, :n])
