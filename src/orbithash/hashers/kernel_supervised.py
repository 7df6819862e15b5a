"""KSH: supervised hashing with kernels."""

import logging
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.linalg import eigh
from scipy.optimize import minimize
from sklearn.utils import check_random_state

from orbithash.hashers.anchors import draw_anchors
from orbithash.hashers.base import SupervisedHasher, squash
from orbithash.hashers.labels import check_both_kinds_of_pairs, memberships
from orbithash.relevance import related

logger = logging.getLogger("orbithash")

RIDGE = 1e-6  # keeps the anchors' covariance invertible; relative to its mean eigenvalue


class KernelSupervisedHashing(SupervisedHasher):
    """Bits learned one after the other so that inner products of codes fit who is similar.

    Codes of ±1 are to have inner product n_bits if two images are similar and -n_bits if not.
    Every bit is the sign of a weighted sum of similarities to anchors. It fits what the bits
    before it left over: first by the largest eigenvector, signs ignored, then by descent (L-BFGS,
    where the paper has Nesterov's) with a sigmoid in place of the sign.

    Liu, Wang, Ji, Jiang and Chang, "Supervised Hashing with Kernels", CVPR 2012.

    Args:
        n_training: so many rows, drawn at random, are learned from.
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
        X = self._training_features(X)
        members = memberships(X, y)
        check_both_kinds_of_pairs(members)
        rng = check_random_state(self.random_state)
        self.kernel_ = draw_anchors(X, self.n_anchors, rng)
        rows = rng.permutation(len(X))[: self.n_training]
        K = self.kernel_(X[rows])
        self.mean_ = K.mean(axis=0)
        K -= self.mean_

        similar = related(members[rows], members[rows])
        residue = np.where(similar, 1.0, -1.0) * self.n_bits
        self.weights_ = np.empty((K.shape[1], self.n_bits))
        self.objective_ = [float((residue**2).mean())]
        for bit in range(self.n_bits):
            weights = self._best_of(spectral_weights(K, residue), K, residue)
            h = np.where(K @ weights > 0, 1.0, -1.0)
            residue -= np.outer(h, h)
            self.weights_[:, bit] = weights
            self.objective_.append(float((residue**2).mean()))
            logger.info("KSH: bit %d of %d", bit + 1, self.n_bits)
        return self

    def project(self, X: Any) -> Float[np.ndarray, "n bits"]:
        X = self._new_features(X)
        return squash((self.kernel_(X) - self.mean_) @ self.weights_)

    def _best_of(
        self,
        start: Float[np.ndarray, " anchors"],
        K: Float[np.ndarray, "n anchors"],
        residue: Float[np.ndarray, "n n"],
    ) -> Float[np.ndarray, " anchors"]:
        """The weights after descent, or those before it where their signs fit better."""
        descent = minimize(
            smooth_misfit,
            start,
            args=(K, residue),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": self.n_iter},
        )

        def fit(weights: Float[np.ndarray, " anchors"]) -> float:
            h = np.where(K @ weights > 0, 1, -1)
            return float(h @ residue @ h)

        return max(start, descent.x, key=fit)


def spectral_weights(
    K: Float[np.ndarray, "n anchors"], residue: Float[np.ndarray, "n n"]
) -> Float[np.ndarray, " anchors"]:
    """The a with the largest (K a)' residue (K a) among those with |K a|² = n."""
    covariance = K.T @ K
    ridge = max(RIDGE * np.trace(covariance) / len(covariance), float(np.finfo(float).tiny))
    covariance[np.diag_indices_from(covariance)] += ridge
    last = len(covariance) - 1
    _, vectors = eigh(K.T @ residue @ K, covariance, subset_by_index=[last, last])
    weights: np.ndarray = vectors[:, 0] * np.sqrt(len(K))
    return weights


def smooth_misfit(
    weights: Float[np.ndarray, " anchors"],
    K: Float[np.ndarray, "n anchors"],
    residue: Float[np.ndarray, "n n"],
) -> tuple[float, Float[np.ndarray, " anchors"]]:
    """-b' residue b with b = 2 sigmoid(K a) - 1, the soft sign; and its gradient."""
    b = np.tanh((K @ weights) / 2)
    fitted = residue @ b
    return -float(b @ fitted), -(K.T @ (fitted * (1 - b**2)))
