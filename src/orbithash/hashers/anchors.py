"""Gaussian kernel between features and anchors, which are random training rows (KSH, SDH)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64
from sklearn.metrics.pairwise import euclidean_distances


@dataclass(frozen=True)
class AnchorKernel:
    """Kernel features exp(−d² / (2 width²)), where d is the distance to each anchor.

    Always in double precision: similarities to hundreds of anchors are nearly collinear, so the
    linear systems for their weights are too ill-conditioned for single precision.
    """

    anchors: Float64[np.ndarray, "anchors features"]
    squared_width: float

    def __call__(self, X: Float[np.ndarray, "n features"]) -> Float64[np.ndarray, "n anchors"]:
        similarities: np.ndarray = euclidean_distances(
            X.astype(np.float64), self.anchors, squared=True
        )
        similarities /= -2 * self.squared_width
        np.exp(similarities, out=similarities)  # in place, to save memory
        return similarities


def fit_anchor_kernel(
    X: Float[np.ndarray, "n features"], n_anchors: int, rng: np.random.RandomState
) -> AnchorKernel:
    """Draw random rows as anchors; the kernel's squared width is their mean squared distance."""
    anchors = X[rng.permutation(len(X))[:n_anchors]].astype(np.float64)
    mean_squared_distance = float(euclidean_distances(anchors, squared=True).mean())
    # Above 0 even if all anchors are equal, because the kernel divides by it.
    return AnchorKernel(anchors, max(mean_squared_distance, float(np.finfo(np.float64).tiny)))
