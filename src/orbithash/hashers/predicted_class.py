"""Predicted class: a classifier's answer written as a code, the trivial rival of hashing."""

import warnings
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.utils import check_random_state

from orbithash.errors import InputError
from orbithash.hashers.base import SupervisedHasher, check_similar_and_dissimilar, multi_hot

CANDIDATES = 256  # random code words of which the farthest is taken


class PredictedClass(SupervisedHasher):
    """The code word of the class that logistic regression predicts.

    Every image of a predicted class has the same code. It finds nothing but the class: inside a
    class there is no order, and a class that was not trained on has no code word. Yet it scores
    high where the queries are of the classes that trained, and that is why it is here: a method
    that does not beat it there may have learned nothing but to classify.

    Features are standardised. Of several labels, the most probable one is predicted; an image
    with several trains each of them in equal shares. Code words of different classes are far
    apart, and equal only if there are more classes than codes.

    Sablayrolles, Douze, Usunier and Jégou, "How should we evaluate supervised hashing?", ICASSP
    2017.
    """

    def __init__(
        self,
        n_bits: int = 32,
        *,
        C: float = 0.01,
        n_iter: int = 100,
        normalize: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_bits, self.C, self.n_iter = n_bits, C, n_iter
        self.normalize, self.random_state = normalize, random_state

    def fit(self, X: Any, y: Any = None) -> "PredictedClass":
        X = self._check_and_normalize_training(X)
        if not self.C > 0:
            raise InputError(f"C={self.C!r}; give a number above 0")
        labels = multi_hot(X, y)
        check_similar_and_dissimilar(labels)
        rows, classes = np.nonzero(labels)  # an image with several labels is there several times
        mean, deviation = X.mean(axis=0), X.std(axis=0)
        scale = 1 / np.where(deviation > 0, deviation, 1)
        classifier = LogisticRegression(C=self.C, max_iter=self.n_iter)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            classifier.fit(
                (X[rows] - mean) * scale, classes, sample_weight=1 / labels.sum(axis=1)[rows]
            )
        weights, offset = classifier.coef_, classifier.intercept_
        if len(weights) == 1:  # of two classes, only the second has weights
            weights, offset = np.vstack([-weights, weights]), np.concatenate([-offset, offset])
        self.weights_ = weights.T * scale[:, None]
        self.offset_ = offset - mean @ self.weights_
        rng = check_random_state(self.random_state)
        self.code_words_ = far_apart(len(weights), self.n_bits, rng)
        return self

    def project(self, X: Any) -> Float[np.ndarray, "n bits"]:
        X = self._check_and_normalize_new(X)
        predicted = (X @ self.weights_ + self.offset_).argmax(axis=1)
        embeddings: np.ndarray = self.code_words_[predicted].astype(X.dtype)
        return embeddings


def far_apart(
    n_words: int, n_bits: int, rng: np.random.RandomState
) -> Bool[np.ndarray, "{n_words} {n_bits}"]:
    """Return code words, each the farthest of random candidates from all words before it.

    >>> words = far_apart(4, 16, np.random.RandomState(0))
    >>> int((words[:, None] != words).sum(axis=2)[np.triu_indices(4, 1)].min())
    9
    """
    words = np.empty((n_words, n_bits))
    for number in range(n_words):
        candidates = rng.choice([-1.0, 1.0], size=(CANDIDATES, n_bits))
        nearest = (candidates @ words[:number].T).max(axis=1, initial=-n_bits)
        words[number] = candidates[nearest.argmin()]
    return words > 0
