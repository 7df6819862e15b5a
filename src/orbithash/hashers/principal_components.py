"""PCA-sign: signs of principal components, the simplest baseline."""

from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.decomposition import PCA

from orbithash.errors import InputError
from orbithash.hashers.base import Hasher, squash


class PrincipalComponentSigns(Hasher):
    """The signs of the first principal components.

    Every component has one bit, regardless of its variance, so longer codes soon stop improving.
    The rotation of iterative quantization avoids that.
    """

    def __init__(
        self, n_bits: int = 32, *, normalize: bool = True, random_state: Any = None
    ) -> None:
        self.n_bits, self.normalize, self.random_state = n_bits, normalize, random_state

    def fit(self, X: Any, y: Any = None) -> "PrincipalComponentSigns":
        self.pca_ = one_component_per_bit(
            self._training_features(X), self.n_bits, self.random_state
        )
        return self

    def project(self, X: Any) -> Float[np.ndarray, "n bits"]:
        X = self._new_features(X)
        return squash(self.pca_.transform(X))


def one_component_per_bit(
    X: Float[np.ndarray, "n features"], n_bits: int, random_state: Any
) -> PCA:
    if n_bits > min(X.shape):
        raise InputError(
            f"n_bits={n_bits}, one per principal component, but there are at most {min(X.shape)} "
            f"components (n_samples={X.shape[0]}, n_features={X.shape[1]}); use fewer bits, more "
            "data, or a method without this limit ('lsh', 'sh')"
        )
    return principal_components(X, n_bits, random_state)


def principal_components(
    X: Float[np.ndarray, "n features"], n_components: int, random_state: Any
) -> PCA:
    if np.ptp(X, axis=0).max() <= np.finfo(X.dtype).eps:
        raise InputError(
            f"all rows are equal, or are equal at unit length (n_samples={X.shape[0]}, "
            f"n_features={X.shape[1]}); give features that differ, or pass normalize=False"
        )
    return PCA(n_components, random_state=random_state).fit(X)
