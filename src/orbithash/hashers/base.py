"""The base class of hashers: a scikit-learn transformer from features to bits."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.preprocessing import normalize
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from orbithash.errors import InputError

FLOATS = [np.float64, np.float32]  # types that are kept; others are converted to float64


class Hasher(ABC, TransformerMixin, BaseEstimator):
    """A transformer with `fit`, `project` (embeddings) and `transform` (bits).

    Subclasses implement `fit` and `project`. As everywhere in this library, embeddings are in
    [0, 1] and a bit is `embedding > 0.5`. If a paper takes the sign of a projection, `project`
    returns the sigmoid of the projection, which keeps its distance from the threshold.

    With `normalize`, the default, rows are first scaled to unit length, because features of
    networks are usually compared by direction.
    """

    n_bits: int
    normalize: bool

    @abstractmethod
    def fit(self, X: Any, y: Any = None) -> "Hasher":
        """Fit to features (n, d); supervised methods also need labels."""

    @abstractmethod
    def project(self, X: Any) -> Float[np.ndarray, "n bits"]:
        """Return embeddings in [0, 1]."""

    def transform(self, X: Any) -> Bool[np.ndarray, "n bits"]:
        return self.project(X) > 0.5

    def _check_and_normalize_training(self, X: Any) -> Float[np.ndarray, "n features"]:
        """Validate `n_bits` and the features of `fit`; scale rows to unit length if `normalize`."""
        if not isinstance(self.n_bits, int | np.integer) or self.n_bits < 1:
            raise InputError(f"n_bits={self.n_bits!r}; it must be an integer, at least 1")
        features: np.ndarray = validate_data(self, X, dtype=FLOATS, ensure_min_samples=2)
        return self._normalized(features)

    def _check_and_normalize_new(self, X: Any) -> Float[np.ndarray, "n features"]:
        """Do the same for the features of `project`, with as many columns as in `fit`."""
        check_is_fitted(self)
        features: np.ndarray = validate_data(self, X, dtype=FLOATS, reset=False)
        return self._normalized(features)

    def _normalized(self, features: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        normalized: np.ndarray = normalize(features) if self.normalize else features
        return normalized

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # bits are always bool
        return tags


class SupervisedHasher(Hasher):
    """A hasher whose `fit` needs labels: integers (n,), or a 0-1 table (n, classes)."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def sigmoid(projections: Float[np.ndarray, "n bits"]) -> Float[np.ndarray, "n bits"]:
    """Map projections to embeddings in [0, 1]; positive projections exceed 0.5, and give bit 1."""
    embeddings: np.ndarray = expit(projections)
    return embeddings
