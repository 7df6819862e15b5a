"""SH: spectral hashing."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from orbithash.hashers.base import Hasher
from orbithash.hashers.principal_components import fit_pca


class SpectralHashing(Hasher):
    """Signs of the smoothest cosine waves along the principal components.

    For data distributed uniformly in a box, the eigenfunctions of the graph Laplacian have a closed
    form: on a side of length r, the k-th is a cosine of k half-waves, smoother for lower k/r. A bit
    is the sign of one such wave. Long sides get several bits and short ones may get none, so
    there can be more bits than features. The box is the range of the training features on each
    component.

    Weiss, Torralba and Fergus, "Spectral Hashing", NIPS 2008.
    """

    def __init__(
        self, n_bits: int = 32, *, normalize: bool = True, random_state: Any = None
    ) -> None:
        self.n_bits, self.normalize, self.random_state = n_bits, normalize, random_state

    def fit(self, X: Any, y: Any = None) -> "SpectralHashing":
        X = self._check_and_normalize_training(X)
        self.pca_ = fit_pca(X, min(self.n_bits, *X.shape), self.random_state)
        V = self.pca_.transform(X)
        self.low_ = V.min(axis=0)
        self.components_, half_waves = smoothest_waves(np.ptp(V, axis=0), self.n_bits)
        self.frequencies_ = np.pi * half_waves / np.ptp(V, axis=0)[self.components_]
        return self

    def project(self, X: Any) -> Float[np.ndarray, "n bits"]:
        X = self._check_and_normalize_new(X)
        V = self.pca_.transform(X) - self.low_
        waves: np.ndarray = np.cos(V[:, self.components_] * self.frequencies_)
        return (1 + waves) / 2


def smoothest_waves(
    extents: Float[np.ndarray, " components"], n_bits: int
) -> tuple[Int[np.ndarray, " bits"], Int[np.ndarray, " bits"]]:
    """Return component and number of half-waves of the waves with the smallest eigenvalues.

    The eigenvalue of k half-waves on a side of length r is 1 − exp(−(ε k π / r)² / 2), which grows
    with k / r for every ε.

    >>> smoothest_waves(np.array([3.0, 2.0]), 3)
    (array([0, 1, 0]), array([1, 1, 2]))
    """
    half_waves = np.arange(1, n_bits + 1)
    with np.errstate(divide="ignore"):
        frequencies = half_waves / extents[:, None]  # [component, half-waves - 1]
    smoothest = np.argsort(frequencies, axis=None, kind="stable")[:n_bits]
    components, index = np.unravel_index(smoothest, frequencies.shape)
    return components, half_waves[index]
