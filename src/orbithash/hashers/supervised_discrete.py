"""SDH: supervised discrete hashing."""

import logging
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.linalg import cho_factor, cho_solve
from sklearn.utils import check_random_state

from orbithash.hashers.anchors import draw_anchors
from orbithash.hashers.base import SupervisedHasher, squash
from orbithash.hashers.labels import check_pairs, multi_hot

logger = logging.getLogger("orbithash")

RIDGE = 1e-6  # keeps the anchors' Gram matrix invertible; relative to its mean eigenvalue


class SupervisedDiscreteHashing(SupervisedHasher):
    """Codes from which a linear classifier predicts the labels, optimised as discrete bits.

    Alternates three steps: fit a classifier W from the codes B to the labels (`classifier_ridge`,
    the paper's λ); fit a projection P from similarities to anchors to the codes; update the codes
    for both, one bit of all images at a time (`projection_weight`, the paper's ν).

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
        X = self._training_features(X)
        labels = multi_hot(X, y)
        check_pairs(labels)
        rng = check_random_state(self.random_state)
        self.kernel_ = draw_anchors(X, self.n_anchors, rng)
        K = self.kernel_(X)
        gram = K.T @ K
        gram[np.diag_indices_from(gram)] += RIDGE * np.trace(gram) / len(gram)
        factor = cho_factor(gram)

        Y = labels.astype(float)
        B = np.where(rng.standard_normal((len(X), self.n_bits)) > 0, 1.0, -1.0)
        P = cho_solve(factor, K.T @ B)
        ridge = self.classifier_ridge * np.eye(self.n_bits)
        for iteration in range(self.n_iter):
            W = np.linalg.solve(B.T @ B + ridge, B.T @ Y)
            B = descend_codes(B, W, Y @ W.T + self.projection_weight * (K @ P))
            P = cho_solve(factor, K.T @ B)
            logger.info("SDH: iteration %d of %d", iteration + 1, self.n_iter)
        self.projection_ = P
        return self

    def project(self, X: Any) -> Float[np.ndarray, "n bits"]:
        X = self._new_features(X)
        return squash(self.kernel_(X) @ self.projection_)


def descend_codes(
    codes: Float[np.ndarray, "n bits"],
    W: Float[np.ndarray, "bits classes"],
    Q: Float[np.ndarray, "n bits"],
    n_cycles: int = 10,
) -> Float[np.ndarray, "n bits"]:
    """Lower |B W|² − 2 tr(B' Q) over codes of ±1 by cyclic coordinate descent over the bits.

    With all other bits of B fixed, the best value of a bit is the sign of Q minus the contribution
    of the other bits.
    """
    B = codes.copy()
    overlap = W @ W.T
    np.fill_diagonal(overlap, 0)
    for _ in range(n_cycles):
        before = B.copy()
        for bit in range(B.shape[1]):
            B[:, bit] = np.where(Q[:, bit] - B @ overlap[:, bit] > 0, 1, -1)
        if np.array_equal(B, before):
            break
    return B
