"""The base classes of hashers, scikit-learn transformers from features to bits, and their labels.

Labels of supervised hashers may be one integer per image, or a 0-1 table (images, classes). Two
images are similar if they share a label.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.preprocessing import normalize
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from orbithash.errors import InputError
from orbithash.relevance import check_labels

FLOATS = [np.float64, np.float32]  # types that are kept; others are converted to float64
MAX_ATTEMPTS = 100  # draws of dissimilar pairs; few are needed unless most pairs are similar


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


def multi_hot(X: Any, y: Any) -> Bool[np.ndarray, "n classes"]:
    """Check the labels `y` of the features `X`; return them as a table with a column per class.

    >>> multi_hot([[0.1], [0.2], [0.3]], [5, 7, 5]).astype(int)
    array([[1, 0],
           [0, 1],
           [1, 0]])
    """
    if y is None:
        raise InputError(
            "this hasher requires y to be passed, but the target y is None; pass the labels, or "
            "choose an unsupervised hasher ('itq', 'sh', 'lsh')"
        )
    labels = check_labels(to_integers(np.asarray(y)), len(X), "training")
    if labels.ndim == 2:
        return labels.astype(bool)
    classes, index = np.unique(labels, return_inverse=True)
    table: np.ndarray = index[:, None] == np.arange(len(classes))
    return table


def to_integers(labels: np.ndarray) -> np.ndarray:
    """Convert whole numbers in object or float arrays, which scikit-learn may pass, to integers."""
    if labels.dtype.kind == "O":
        labels = np.array(labels.tolist())
    if labels.dtype.kind == "f" and np.isfinite(labels).all() and (labels % 1 == 0).all():
        labels = labels.astype(np.int64)
    return labels


def similar_pairs(
    labels: Bool[np.ndarray, "n classes"], n_pairs: int, rng: np.random.RandomState
) -> Int[np.ndarray, "{n_pairs} 2"]:
    """Draw random pairs of different images that share a label.

    An entry (image, label) of the table is drawn uniformly, then another image with that label.
    """
    classes, images = np.nonzero(labels.T)  # all entries, sorted by class
    sizes = labels.sum(axis=0)
    starts = np.cumsum(sizes) - sizes
    candidates = np.flatnonzero(sizes[classes] > 1)
    if not len(candidates):
        raise InputError("no two rows share a label; give at least two rows of one class")
    first = rng.choice(candidates, n_pairs)
    size, start = sizes[classes[first]], starts[classes[first]]
    # Cyclic steps of 1 to size − 1 within the class reach every image except the first.
    step = 1 + (rng.random_sample(n_pairs) * (size - 1)).astype(int)
    second = start + (first - start + step) % size
    return np.stack([images[first], images[second]], axis=1)


def dissimilar_pairs(
    labels: Bool[np.ndarray, "n classes"], n_pairs: int, rng: np.random.RandomState
) -> Int[np.ndarray, "{n_pairs} 2"]:
    """Draw random pairs of images that share no label."""
    found = np.empty((0, 2), dtype=int)
    for _ in range(MAX_ATTEMPTS):
        drawn = rng.randint(len(labels), size=(n_pairs, 2))
        similar = (labels[drawn[:, 0]] & labels[drawn[:, 1]]).any(axis=1)
        found = np.concatenate([found, drawn[~similar & (drawn[:, 0] != drawn[:, 1])]])
        if len(found) >= n_pairs:
            return found[:n_pairs]
    if not len(found):
        raise InputError("found no two rows without a common label; give at least two classes")
    return np.resize(found, (n_pairs, 2))  # repeats the pairs found


def check_similar_and_dissimilar(labels: Bool[np.ndarray, "n classes"]) -> None:
    """Raise unless some rows share a label and some do not."""
    rng = np.random.RandomState(0)  # not the hasher's, whose draws stay the same
    similar_pairs(labels, 1, rng)
    dissimilar_pairs(labels, len(labels), rng)
