"""KSH: supervised hashing with kernels, and the anchor kernel that it shares with SDH."""

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float64
from scipy.linalg import eigh
from scipy.optimize import minimize
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import check_random_state

from orbithash.hashers.base import (
    SupervisedHasher,
    check_similar_and_dissimilar,
    multi_hot,
    sigmoid,
)
from orbithash.relevance import related

logger = logging.getLogger("orbithash")

COVARIANCE_RIDGE = 1e-6  # keeps the anchors' covariance invertible; relative to its mean eigenvalue


class KernelSupervisedHashing(SupervisedHasher):
    """Bits fitted one by one, so that inner products of codes match the similarity of pairs.

    The target for the inner product of two codes of ±1 is n_bits if the images are similar and
    −n_bits otherwise. Every bit is the sign of a weighted sum of similarities to anchors. It is
    fitted to the residual of the previous bits. The relaxation without the sign is an eigenvalue
    problem; its solution is refined by L-BFGS (Nesterov's method in the paper) with a sigmoid in
    place of the sign.

    Liu, Wang, Ji, Jiang and Chang, "Supervised Hashing with Kernels", CVPR 2012.

    Args:
        n_training: Number of random rows to fit to.
    """

    def __init__(
        self,
        n_bits: int = 32,
        *,
        n_training: int = 2000,
        n_anchors: int = 300,
        n_iter: int = 30,
        normalize: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_bits, self.n_training, self.n_anchors = n_bits, n_training, n_anchors
        self.n_iter, self.normalize, self.random_state = n_iter, normalize, random_state

    def fit(self, X: Any, y: Any = None) -> "KernelSupervisedHashing":
        X = self._check_and_normalize_training(X)
        labels = multi_hot(X, y)
        check_similar_and_dissimilar(labels)
        rng = check_random_state(self.random_state)
        self.kernel_ = fit_anchor_kernel(X, self.n_anchors, rng)
        rows = rng.permutation(len(X))[: self.n_training]
        K = self.kernel_(X[rows])
        self.mean_ = K.mean(axis=0)
        K -= self.mean_

        similar = related(labels[rows], labels[rows])
        residual = np.where(similar, 1.0, -1.0) * self.n_bits
        self.weights_ = np.empty((K.shape[1], self.n_bits))
        self.objective_ = [float((residual**2).mean())]
        for bit in range(self.n_bits):
            weights = self._refine(spectral_weights(K, residual), K, residual)
            h = np.where(K @ weights > 0, 1.0, -1.0)
            residual -= np.outer(h, h)
            self.weights_[:, bit] = weights
            self.objective_.append(float((residual**2).mean()))
            logger.info("KSH: bit %d of %d", bit + 1, self.n_bits)
        return self

    def project(self, X: Any) -> Float[np.ndarray, "n bits"]:
        X = self._check_and_normalize_new(X)
        return sigmoid((self.kernel_(X) - self.mean_) @ self.weights_)

    def _refine(
        self,
        start: Float[np.ndarray, " anchors"],
        K: Float[np.ndarray, "n anchors"],
        residual: Float[np.ndarray, "n n"],
    ) -> Float[np.ndarray, " anchors"]:
        """Return the weights after L-BFGS, or `start` if its signs fit the residual better."""
        result = minimize(
            smooth_objective,
            start,
            args=(K, residual),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": self.n_iter},
        )

        def agreement(weights: Float[np.ndarray, " anchors"]) -> float:
            h = np.where(K @ weights > 0, 1, -1)
            return float(h @ residual @ h)

        return max(start, result.x, key=agreement)


def spectral_weights(
    K: Float[np.ndarray, "n anchors"], residual: Float[np.ndarray, "n n"]
) -> Float[np.ndarray, " anchors"]:
    """Return the weights a that maximise (K a)' residual (K a) subject to |K a|² = n."""
    covariance = K.T @ K
    ridge = max(
        COVARIANCE_RIDGE * np.trace(covariance) / len(covariance), float(np.finfo(float).tiny)
    )
    covariance[np.diag_indices_from(covariance)] += ridge
    last = len(covariance) - 1
    _, vectors = eigh(K.T @ residual @ K, covariance, subset_by_index=[last, last])
    weights: np.ndarray = vectors[:, 0] * np.sqrt(len(K))
    return weights


def smooth_objective(
    weights: Float[np.ndarray, " anchors"],
    K: Float[np.ndarray, "n anchors"],
    residual: Float[np.ndarray, "n n"],
) -> tuple[float, Float[np.ndarray, " anchors"]]:
    """Return −b' residual b and its gradient, with b = 2 sigmoid(K a) − 1, the soft sign."""
    b = np.tanh((K @ weights) / 2)
    residual_b = residual @ b
    return -float(b @ residual_b), -(K.T @ (residual_b * (1 - b**2)))


@dataclass(frozen=True)
class AnchorKernel:
    """Kernel features exp(−d² / (2 width²)), where d is the distance to each anchor.

    Anchors are random training rows.

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
