"""Gaussian kernel features relative to anchors, random training rows; used by KSH and SDH."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64
from sklearn.metrics.pairwise import euclidean_distances


@dataclass(frozen=True)
class AnchorKernel:
    """exp(−d² / (2 width²)) of the distance d to each anchor.

    Always in double precision: similarities to hundreds of anchors are nearly collinear, and
    systems in single precision are too ill-conditioned to solve for their weights.
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


def draw_anchors(
    X: Float[np.ndarray, "n features"], n_anchors: int, rng: np.random.RandomState
) -> AnchorKernel:
    """Draw random rows as anchors; the squared width is their mean squared distance."""
    anchors = X[rng.permutation(len(X))[:n_anchors]].astype(np.float64)
    mean = float(euclidean_distances(anchors, squared=True).mean())
    return AnchorKernel(anchors, max(mean, float(np.finfo(np.float64).tiny)))
