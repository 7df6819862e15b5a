"""Similarity to a few training rows, the anchors: how KSH and SDH see a vector."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from sklearn.metrics.pairwise import euclidean_distances


@dataclass(frozen=True)
class AnchorKernel:
    """exp(-d² / (2 width²)) of the distance d to each anchor."""

    anchors: Float[np.ndarray, "anchors features"]
    squared_width: float

    def __call__(self, X: Float[np.ndarray, "n features"]) -> Float[np.ndarray, "n anchors"]:
        distances = euclidean_distances(X, self.anchors, squared=True)
        similarities: np.ndarray = np.exp(distances / (-2 * self.squared_width))
        return similarities


def draw_anchors(
    X: Float[np.ndarray, "n features"], n_anchors: int, rng: np.random.RandomState
) -> AnchorKernel:
    """Random rows as anchors; the squared width is the mean squared distance between them."""
    anchors = X[rng.permutation(len(X))[:n_anchors]]
    mean = float(euclidean_distances(anchors, squared=True).mean())
    return AnchorKernel(anchors, max(mean, float(np.finfo(X.dtype).tiny)))
