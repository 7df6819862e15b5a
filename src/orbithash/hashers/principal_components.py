"""PCA-sign: signs of principal components, the simplest baseline."""

from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.decomposition import PCA

from orbithash.errors import InputError
from orbithash.hashers.base import Hasher, sigmoid


class PrincipalComponentSigns(Hasher):
    """The signs of the first principal components.

    Every component gets one bit, regardless of its variance, so longer codes soon stop improving.
    Iterative quantization rotates the components to balance their variance.
    """

    def __init__(
        self, n_bits: int = 32, *, normalize: bool = True, random_state: Any = None
    ) -> None:
        self.n_bits, self.normalize, self.random_state = n_bits, normalize, random_state

    def fit(self, X: Any, y: Any = None) -> "PrincipalComponentSigns":
        self.pca_ = fit_pca_per_bit(
            self._check_and_normalize_training(X), self.n_bits, self.random_state
        )
        return self

    def project(self, X: Any) -> Float[np.ndarray, "n bits"]:
        X = self._check_and_normalize_new(X)
        return sigmoid(self.pca_.transform(X))


def fit_pca_per_bit(X: Float[np.ndarray, "n features"], n_bits: int, random_state: Any) -> PCA:
    """Fit a PCA with one component per bit; raise if there are too few."""
    if n_bits > min(X.shape):
        raise InputError(
            f"n_bits={n_bits}, one per principal component, but there are at most {min(X.shape)} "
            f"components (n_samples={X.shape[0]}, n_features={X.shape[1]}); use fewer bits, more "
            "data, or a method without this limit ('lsh', 'sh')"
        )
    return fit_pca(X, n_bits, random_state)


def fit_pca(X: Float[np.ndarray, "n features"], n_components: int, random_state: Any) -> PCA:
    """Fit a PCA; raise if all rows are identical. Spectral hashing calls it directly."""
    if np.ptp(X, axis=0).max() <= np.finfo(X.dtype).eps:
        raise InputError(
            f"all rows are identical, or identical after normalisation (n_samples={X.shape[0]}, "
            f"n_features={X.shape[1]}); give features that differ, or pass normalize=False"
        )
    return PCA(n_components, random_state=random_state).fit(X)
