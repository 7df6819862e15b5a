"""LDA-ITQ: whitening by labels, then iterative quantization."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float64
from sklearn.utils import check_random_state

from orbithash.errors import InputError
from orbithash.hashers.base import (
    SupervisedHasher,
    check_similar_and_dissimilar,
    multi_hot,
    sigmoid,
)
from orbithash.hashers.iterative_quantization import fit_rotation
from orbithash.hashers.principal_components import fit_pca_per_bit

ROUNDING = 1e-9  # of the variance: a smaller scatter is an error of rounding


class DiscriminantQuantization(SupervisedHasher):
    """ITQ of features that are whitened by their scatter within the classes.

    Whitening shrinks the directions in which images of one class differ. The principal components
    of the result are the directions that separate the classes best, those of linear discriminant
    analysis. Labels only whiten, so classes that were not trained on are separated, too.

    The scatter is estimated from few images per class: a share `shrinkage` of it is replaced by
    the same amount in every direction, and 1 leaves plain ITQ.

    Fisher, "The use of multiple measurements in taxonomic problems", 1936; Gong and Lazebnik,
    "Iterative Quantization: A Procrustean Approach to Learning Binary Codes", CVPR 2011.
    """

    def __init__(
        self,
        n_bits: int = 32,
        *,
        shrinkage: float = 0.5,
        n_iter: int = 50,
        normalize: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_bits, self.shrinkage, self.n_iter = n_bits, shrinkage, n_iter
        self.normalize, self.random_state = normalize, random_state

    def fit(self, X: Any, y: Any = None) -> "DiscriminantQuantization":
        X = self._check_and_normalize_training(X)
        if not 0 < self.shrinkage <= 1:
            raise InputError(f"shrinkage={self.shrinkage!r}; give a number above 0, at most 1")
        labels = multi_hot(X, y)
        check_similar_and_dissimilar(labels)
        rng = check_random_state(self.random_state)
        self.mean_ = X.mean(axis=0)
        scatter = within_class_scatter(X - self.mean_, labels)
        whitening = whitening_matrix(scatter, self.shrinkage, floor=ROUNDING * float(X.var()))
        whitening = whitening.astype(X.dtype)
        whitened = (X - self.mean_) @ whitening
        pca = fit_pca_per_bit(whitened, self.n_bits, rng)
        rotation, _ = fit_rotation(pca.transform(whitened), self.n_iter, rng)
        self.projection_ = whitening @ pca.components_.T @ rotation
        return self

    def project(self, X: Any) -> Float[np.ndarray, "n bits"]:
        X = self._check_and_normalize_new(X)
        return sigmoid((X - self.mean_) @ self.projection_)


def within_class_scatter(
    features: Float[np.ndarray, "n d"], labels: Bool[np.ndarray, "n classes"]
) -> Float64[np.ndarray, "d d"]:
    """Return the mean outer product of the differences between images and their class means.

    An image with several labels counts in equal shares for each of them.

    >>> labels = np.array([[True, False], [True, False], [False, True]])
    >>> within_class_scatter(np.array([[0.0, 1.0], [2.0, 1.0], [9.0, 9.0]]), labels)
    array([[0.66666667, 0.        ],
           [0.        , 0.        ]])
    """
    X = features.astype(np.float64)
    shares = labels / np.maximum(labels.sum(axis=1, keepdims=True), 1)
    sizes = shares.sum(axis=0)
    means = shares.T @ X / np.maximum(sizes, 1e-12)[:, None]
    # The sum of share · (x − m)(x − m)ᵀ, in which the mixed terms equal those of the means.
    in_a_class = shares.sum(axis=1)
    scatter = (X * in_a_class[:, None]).T @ X - (means * sizes[:, None]).T @ means
    return np.asarray(scatter / in_a_class.sum())


def whitening_matrix(
    scatter: Float64[np.ndarray, "d d"], shrinkage: float, *, floor: float = 0.0
) -> Float64[np.ndarray, "d d"]:
    """Return the inverse square root of the shrunk scatter, scaled to a mean eigenvalue of 1.

    If the mean eigenvalue is at most `floor`, the images of a class are all equal: the identity.
    """
    d = len(scatter)
    mean = np.trace(scatter) / d
    if mean <= floor:
        return np.eye(d)
    shrunk = (1 - shrinkage) * scatter / mean + shrinkage * np.eye(d)
    eigenvalues, U = np.linalg.eigh(shrunk)
    return np.asarray(U / np.sqrt(eigenvalues) @ U.T)
