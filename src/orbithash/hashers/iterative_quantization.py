"""ITQ: iterative quantization."""

from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.utils import check_random_state

from orbithash.hashers.base import Hasher, sigmoid
from orbithash.hashers.principal_components import fit_pca_per_bit


class IterativeQuantization(Hasher):
    """PCA, then the rotation that brings the projections closest to ±1.

    Gong and Lazebnik, "Iterative Quantization: A Procrustean Approach to Learning Binary
    Codes", CVPR 2011.
    """

    def __init__(
        self,
        n_bits: int = 32,
        *,
        n_iter: int = 50,
        normalize: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_bits, self.n_iter = n_bits, n_iter
        self.normalize, self.random_state = normalize, random_state

    def fit(self, X: Any, y: Any = None) -> "IterativeQuantization":
        X = self._check_and_normalize_training(X)
        rng = check_random_state(self.random_state)
        self.pca_ = fit_pca_per_bit(X, self.n_bits, rng)
        V = self.pca_.transform(X)
        self.rotation_, self.quantization_errors_ = fit_rotation(V, self.n_iter, rng)
        return self

    def project(self, X: Any) -> Float[np.ndarray, "n bits"]:
        X = self._check_and_normalize_new(X)
        return sigmoid(self.pca_.transform(X) @ self.rotation_)


def fit_rotation(
    V: Float[np.ndarray, "n bits"], n_iter: int, rng: np.random.RandomState
) -> tuple[Float[np.ndarray, "bits bits"], Float[np.ndarray, " iterations"]]:
    """Return the rotation that brings projections closest to ±1, and the errors on the way."""
    R = np.linalg.qr(rng.standard_normal((V.shape[1], V.shape[1])))[0].astype(V.dtype)
    errors = np.empty(n_iter)
    for iteration in range(n_iter):
        B = np.where(V @ R > 0, 1, -1).astype(V.dtype)
        errors[iteration] = ((B - V @ R) ** 2).sum()
        # Orthogonal Procrustes: the rotation that brings V closest to the current codes.
        U, _, Wt = np.linalg.svd(V.T @ B)
        R = U @ Wt
    return R, errors
