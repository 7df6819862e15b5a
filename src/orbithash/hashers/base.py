"""What every shallow hasher is: a scikit-learn transformer from features to bits."""

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

FLOATS = [np.float64, np.float32]  # kept as they come; anything else becomes the first


class Hasher(ABC, TransformerMixin, BaseEstimator):
    """Learns in `fit`, gives embeddings in `project` and bits in `transform`.

    A method writes `fit` and `project`. As everywhere in this library an embedding lies in [0, 1]
    and its bit is `embedding > 0.5`: where a paper takes the sign of a projection, `project`
    returns the projection's sigmoid, so that how far a bit is from turning stays visible.

    With `normalize`, the default, every method first scales each row to unit length: directions
    are what features of networks are compared by. Without it, lengths count too.
    """

    n_bits: int
    normalize: bool

    @abstractmethod
    def fit(self, X: Any, y: Any = None) -> "Hasher":
        """Learn from features (n, d); supervised methods also need the labels."""

    @abstractmethod
    def project(self, X: Any) -> Float[np.ndarray, "n bits"]:
        """Embeddings in [0, 1]."""

    def transform(self, X: Any) -> Bool[np.ndarray, "n bits"]:
        return self.project(X) > 0.5

    def _training_features(self, X: Any) -> Float[np.ndarray, "n features"]:
        if not isinstance(self.n_bits, int | np.integer) or self.n_bits < 1:
            raise InputError(f"n_bits={self.n_bits!r}: give a whole number of bits, at least 1")
        features: np.ndarray = validate_data(self, X, dtype=FLOATS, ensure_min_samples=2)
        return self._scaled(features)

    def _new_features(self, X: Any) -> Float[np.ndarray, "n features"]:
        check_is_fitted(self)
        features: np.ndarray = validate_data(self, X, dtype=FLOATS, reset=False)
        return self._scaled(features)

    def _scaled(self, features: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        unit: np.ndarray = normalize(features) if self.normalize else features
        return unit

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # bits are bool, whatever the features were
        return tags


class SupervisedHasher(Hasher):
    """A hasher whose `fit` needs labels: integers (n,), or 0/1 per image and class (n, classes)."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def squash(projections: Float[np.ndarray, "n bits"]) -> Float[np.ndarray, "n bits"]:
    """Projections whose sign is the bit, as embeddings."""
    embeddings: np.ndarray = expit(projections)
    return embeddings
