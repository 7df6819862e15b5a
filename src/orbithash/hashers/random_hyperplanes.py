"""LSH: locality-sensitive hashing by random hyperplanes."""

from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.utils import check_random_state

from orbithash.hashers.base import Hasher, sigmoid


class RandomHyperplanes(Hasher):
    """Bits that tell on which side of random hyperplanes a vector lies.

    Two vectors differ in a bit with probability proportional to the angle between them, measured
    at the mean of the training features. `center=False` gives the paper's hyperplanes through the
    origin, which split non-negative features (after a ReLU) less evenly.

    Charikar, "Similarity Estimation Techniques from Rounding Algorithms", STOC 2002.
    """

    def __init__(
        self,
        n_bits: int = 32,
        *,
        center: bool = True,
        normalize: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_bits, self.center = n_bits, center
        self.normalize, self.random_state = normalize, random_state

    def fit(self, X: Any, y: Any = None) -> "RandomHyperplanes":
        X = self._check_and_normalize_training(X)
        rng = check_random_state(self.random_state)
        self.origin_ = X.mean(axis=0) if self.center else np.zeros(X.shape[1])
        self.hyperplanes_ = rng.standard_normal((X.shape[1], self.n_bits))
        return self

    def project(self, X: Any) -> Float[np.ndarray, "n bits"]:
        return sigmoid((self._check_and_normalize_new(X) - self.origin_) @ self.hyperplanes_)
