"""MLH: minimal loss hashing."""

import logging
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from sklearn.utils import check_random_state

from orbithash.errors import InputError
from orbithash.hashers.base import SupervisedHasher, squash
from orbithash.hashers.labels import dissimilar_pairs, memberships, similar_pairs

logger = logging.getLogger("orbithash")

MOMENTUM = 0.9
STEPS_PER_DRAW = 100  # pairs are drawn for so many steps at once


class MinimalLossHashing(SupervisedHasher):
    """Hyperplanes whose codes keep similar pairs within a radius and others outside of it.

    A similar pair costs its Hamming distance beyond `radius` (given as a share of the bits), a
    dissimilar one what it lacks, times `dissimilar_weight`. The cost of codes has no gradient;
    what is lowered by stochastic steps, over pairs of which half are similar, is an upper bound:
    how much better the costliest likely pair of codes is than the codes themselves.

    Norouzi and Fleet, "Minimal Loss Hashing for Compact Binary Codes", ICML 2011.

    Args:
        learning_rate: of the first step, falling linearly to 0; large, because costs are counted
            in bits and projections of unit vectors start far below 1.
    """

    def __init__(
        self,
        n_bits: int = 32,
        *,
        radius: float = 0.3,
        dissimilar_weight: float = 1.0,
        n_steps: int = 4000,
        batch_size: int = 100,
        learning_rate: float = 30.0,
        weight_decay: float = 2e-5,
        normalize: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_bits, self.radius, self.dissimilar_weight = n_bits, radius, dissimilar_weight
        self.n_steps, self.batch_size = n_steps, batch_size
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.normalize, self.random_state = normalize, random_state

    def fit(self, X: Any, y: Any = None) -> "MinimalLossHashing":
        X = self._training_features(X)
        if self.batch_size < 2:
            raise InputError(f"batch_size={self.batch_size}: a batch needs at least two pairs")
        members = memberships(X, y)
        rng = check_random_state(self.random_state)
        self.mean_ = X.mean(axis=0)
        X = X - self.mean_
        # Vectors of length 1 on average, so that one learning rate suits all features.
        length = max(np.sqrt((X**2).sum(axis=1).mean()), np.finfo(X.dtype).tiny)
        X /= length
        W = rng.standard_normal((X.shape[1], self.n_bits)).astype(X.dtype)
        W /= np.linalg.norm(W, axis=0)
        W = self._descend(X, members, W, rng)
        self.hyperplanes_ = W / length
        return self

    def project(self, X: Any) -> Float[np.ndarray, "n bits"]:
        return squash((self._new_features(X) - self.mean_) @ self.hyperplanes_)

    def _descend(
        self,
        X: Float[np.ndarray, "n features"],
        members: Bool[np.ndarray, "n classes"],
        W: Float[np.ndarray, "features bits"],
        rng: np.random.RandomState,
    ) -> Float[np.ndarray, "features bits"]:
        n_similar = self.batch_size // 2
        n_dissimilar = self.batch_size - n_similar
        costs = hinge_costs(self.n_bits, self.radius * self.n_bits, self.dissimilar_weight)
        costs = np.repeat(costs.astype(X.dtype), [n_similar, n_dissimilar], axis=0)
        velocity = np.zeros_like(W)
        for step in range(self.n_steps):
            if step % STEPS_PER_DRAW == 0:
                batches = draw_batches(members, n_similar, n_dissimilar, rng)
                logger.info("MLH: step %d of %d", step, self.n_steps)
            one, other = X[batches[step % STEPS_PER_DRAW]]
            rate = self.learning_rate * (1 - step / self.n_steps)
            gradient = bound_gradient(W, one, other, costs) + self.weight_decay * W
            velocity = MOMENTUM * velocity - rate * gradient
            W = W + velocity
        return W


def draw_batches(
    members: Bool[np.ndarray, "n classes"],
    n_similar: int,
    n_dissimilar: int,
    rng: np.random.RandomState,
) -> Int[np.ndarray, "steps 2 pairs"]:
    """Rows of the pairs of the next steps; in each batch the similar pairs come first."""
    similar = similar_pairs(members, STEPS_PER_DRAW * n_similar, rng)
    dissimilar = dissimilar_pairs(members, STEPS_PER_DRAW * n_dissimilar, rng)
    return np.concatenate(
        [pairs.T.reshape(2, STEPS_PER_DRAW, -1) for pairs in (similar, dissimilar)], axis=2
    ).swapaxes(0, 1)


def bound_gradient(
    W: Float[np.ndarray, "features bits"],
    one: Float[np.ndarray, "pairs features"],
    other: Float[np.ndarray, "pairs features"],
    costs: Float[np.ndarray, "pairs distances"],
) -> Float[np.ndarray, "features bits"]:
    """Of the mean over pairs of max(cost + g·W'one + h·W'other) - max(g·W'one + h·W'other)."""
    one_projected, other_projected = one @ W, other @ W
    g, h = costliest_codes(one_projected, other_projected, costs)
    one_slopes = g.astype(W.dtype) - (one_projected > 0)
    other_slopes = h.astype(W.dtype) - (other_projected > 0)
    total: np.ndarray = one.T @ one_slopes + other.T @ other_slopes
    return total / len(one)


def hinge_costs(
    n_bits: int, radius: float, dissimilar_weight: float
) -> Float[np.ndarray, "2 distances"]:
    """What each Hamming distance costs: row 0 a similar pair, row 1 a dissimilar one.

    >>> hinge_costs(3, radius=1.0, dissimilar_weight=0.5)
    array([[0. , 1. , 2. , 3. ],
           [1. , 0.5, 0. , 0. ]])
    """
    beyond = np.arange(n_bits + 1) - radius
    return np.maximum([beyond + 1, dissimilar_weight * (1 - beyond)], 0)


def costliest_codes(
    one: Float[np.ndarray, "pairs bits"],
    other: Float[np.ndarray, "pairs bits"],
    costs: Float[np.ndarray, "pairs distances"],
) -> tuple[Bool[np.ndarray, "pairs bits"], Bool[np.ndarray, "pairs bits"]]:
    """For each pair the two codes g, h that maximise cost(distance of g and h) + g·one + h·other.

    Exact (loss-augmented inference): for every distance the bits that differ are those that lose
    least by it, so one sort of the bits gives the best codes at each distance.
    """
    gains = np.maximum(one, other) - np.maximum(one + other, 0)  # of differing, per bit
    order = np.argsort(-gains, axis=1)
    totals = np.zeros_like(costs)
    np.cumsum(np.take_along_axis(gains, order, axis=1), axis=1, out=totals[:, 1:])
    distances = np.argmax(totals + costs, axis=1)
    differs = np.empty(gains.shape, dtype=bool)
    places = np.arange(gains.shape[1])
    np.put_along_axis(differs, order, places < distances[:, None], axis=1)
    larger, agreed = one > other, one + other > 0
    return np.where(differs, larger, agreed), np.where(differs, ~larger, agreed)
