"""SDH: supervised discrete hashing."""

import logging
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.linalg import cho_factor, cho_solve
from sklearn.utils import check_random_state

from orbithash.hashers.base import (
    SupervisedHasher,
    check_similar_and_dissimilar,
    multi_hot,
    sigmoid,
)
from orbithash.hashers.kernel_supervised import fit_anchor_kernel

logger = logging.getLogger("orbithash")

GRAM_RIDGE = 1e-6  # keeps the anchors' Gram matrix invertible; relative to its mean eigenvalue


class SupervisedDiscreteHashing(SupervisedHasher):
    """Codes from which a linear classifier predicts the labels, optimised as discrete bits.

    Minimises |Y − B W|² + λ |W|² + ν |B − K P|² over codes B of ±1, where Y are the labels, K the
    similarities to anchors, λ `classifier_ridge` and ν `projection_weight`. Alternates three steps:
    fit the classifier W from codes to labels; update the codes to fit both W and P, bit by bit; fit
    the projection P from similarities to codes.

    Shen, Shen, Liu and Shen, "Supervised Discrete Hashing", CVPR 2015.
    """

    def __init__(
        self,
        n_bits: int = 32,
        *,
        n_anchors: int = 500,
        classifier_ridge: float = 1.0,
        projection_weight: float = 1e-5,
        n_iter: int = 5,
        normalize: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_bits, self.n_anchors = n_bits, n_anchors
        self.classifier_ridge, self.projection_weight = classifier_ridge, projection_weight
        self.n_iter, self.normalize, self.random_state = n_iter, normalize, random_state

    def fit(self, X: Any, y: Any = None) -> "SupervisedDiscreteHashing":
        X = self._check_and_normalize_training(X)
        labels = multi_hot(X, y)
        check_similar_and_dissimilar(labels)
        rng = check_random_state(self.random_state)
        self.kernel_ = fit_anchor_kernel(X, self.n_anchors, rng)
        K = self.kernel_(X)
        gram = K.T @ K
        gram[np.diag_indices_from(gram)] += GRAM_RIDGE * np.trace(gram) / len(gram)
        factor = cho_factor(gram)

        Y = labels.astype(float)
        B = np.where(rng.standard_normal((len(X), self.n_bits)) > 0, 1.0, -1.0)
        P = cho_solve(factor, K.T @ B)
        for iteration in range(self.n_iter):
            W = np.linalg.solve(B.T @ B + self.classifier_ridge * np.eye(self.n_bits), B.T @ Y)
            # In B, the objective is |B W|² − 2 tr(B' Q) plus a constant, because |B|² is constant.
            Q = Y @ W.T + self.projection_weight * (K @ P)
            B = descend_codes(B, W, Q)
            P = cho_solve(factor, K.T @ B)
            logger.info("SDH: iteration %d of %d", iteration + 1, self.n_iter)
        self.projection_ = P
        return self

    def project(self, X: Any) -> Float[np.ndarray, "n bits"]:
        X = self._check_and_normalize_new(X)
        return sigmoid(self.kernel_(X) @ self.projection_)


def descend_codes(
    codes: Float[np.ndarray, "n bits"],
    W: Float[np.ndarray, "bits classes"],
    Q: Float[np.ndarray, "n bits"],
    n_cycles: int = 10,
) -> Float[np.ndarray, "n bits"]:
    """Minimise |B W|² − 2 tr(B' Q) over codes B of ±1 by cyclic coordinate descent over the bits.

    With all other bits of B fixed, the best value of a bit is the sign of Q minus the contribution
    of the other bits.
    """
    B = codes.copy()
    interactions = W @ W.T  # of two bits, in |B W|²
    np.fill_diagonal(interactions, 0)  # a bit with itself is constant, because (±1)² = 1
    for _ in range(n_cycles):
        before = B.copy()
        for bit in range(B.shape[1]):
            B[:, bit] = np.where(Q[:, bit] - B @ interactions[:, bit] > 0, 1, -1)
        if np.array_equal(B, before):
            break
    return B
