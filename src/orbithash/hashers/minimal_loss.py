"""MLH: minimal loss hashing."""

import logging
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from sklearn.utils import check_random_state

from orbithash.errors import InputError
from orbithash.hashers.base import (
    SupervisedHasher,
    dissimilar_pairs,
    multi_hot,
    sigmoid,
    similar_pairs,
)

logger = logging.getLogger("orbithash")

MOMENTUM = 0.9
MIN_SPREAD = 0.02  # relative to the first component; weaker components are not amplified further
STEPS_PER_DRAW = 100  # pairs are drawn for this many steps at once


class MinimalLossHashing(SupervisedHasher):
    """Hyperplanes whose codes keep similar pairs within a Hamming radius and others outside of it.

    The cost of a pair at Hamming distance d is a hinge: max(d − ρ + 1, 0) if the images are similar
    and `dissimilar_weight` · max(ρ − d + 1, 0) if not, where ρ = `radius` · n_bits. This cost has
    no gradient, so stochastic gradient descent minimises the paper's upper bound on it. Half of the
    pairs in a batch are similar. The descent runs on half-whitened principal components; the hash
    functions stay linear in the features.

    Norouzi and Fleet, "Minimal Loss Hashing for Compact Binary Codes", ICML 2011.

    Args:
        radius: As a share of the bits.
        learning_rate: Of the first step; it decays linearly to 0. It is large because costs count
            bits, while projections of unit vectors start far below 1.
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
        weight_decay: float = 4e-5,
        normalize: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_bits, self.radius, self.dissimilar_weight = n_bits, radius, dissimilar_weight
        self.n_steps, self.batch_size = n_steps, batch_size
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.normalize, self.random_state = normalize, random_state

    def fit(self, X: Any, y: Any = None) -> "MinimalLossHashing":
        X = self._check_and_normalize_training(X)
        if self.batch_size < 2:
            raise InputError(f"batch_size={self.batch_size}; it must be at least 2 pairs")
        labels = multi_hot(X, y)
        rng = check_random_state(self.random_state)
        self.mean_ = X.mean(axis=0)
        T = half_whitening(X - self.mean_)
        X = (X - self.mean_) @ T
        W = rng.standard_normal((X.shape[1], self.n_bits)).astype(X.dtype)
        W /= np.linalg.norm(W, axis=0)
        self.hyperplanes_ = T @ self._descend(X, labels, W, rng)
        return self

    def project(self, X: Any) -> Float[np.ndarray, "n bits"]:
        return sigmoid((self._check_and_normalize_new(X) - self.mean_) @ self.hyperplanes_)

    def _descend(
        self,
        X: Float[np.ndarray, "n features"],
        labels: Bool[np.ndarray, "n classes"],
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
                batches = draw_batches(labels, n_similar, n_dissimilar, rng)
                logger.info("MLH: step %d of %d", step, self.n_steps)
            one, other = X[batches[step % STEPS_PER_DRAW]]
            rate = self.learning_rate * (1 - step / self.n_steps)
            gradient = bound_gradient(W, one, other, costs) + self.weight_decay * W
            velocity = MOMENTUM * velocity - rate * gradient
            W = W + velocity
        return W


def half_whitening(centred: Float[np.ndarray, "n features"]) -> Float[np.ndarray, "features d"]:
    """Return the map to principal components, each scaled to the square root of its spread.

    Gradient steps are then not dominated by the few strongest components. The mean squared length
    of rows becomes 1, so that one learning rate suits all features.
    """
    _, spread, axes = np.linalg.svd(np.linalg.qr(centred, mode="r"), full_matrices=False)
    tiny = np.finfo(centred.dtype).tiny
    relative = spread / max(spread[0], tiny)
    scales = (relative + MIN_SPREAD) ** -0.5
    length = np.linalg.norm(spread * scales) / np.sqrt(len(centred))
    matrix: np.ndarray = axes.T * (scales / max(length, tiny))
    return matrix


def draw_batches(
    labels: Bool[np.ndarray, "n classes"],
    n_similar: int,
    n_dissimilar: int,
    rng: np.random.RandomState,
) -> Int[np.ndarray, "steps 2 pairs"]:
    """Draw the pairs of the next steps; in each batch the similar pairs come first."""
    similar = similar_pairs(labels, STEPS_PER_DRAW * n_similar, rng)
    dissimilar = dissimilar_pairs(labels, STEPS_PER_DRAW * n_dissimilar, rng)
    return np.concatenate(
        [pairs.T.reshape(2, STEPS_PER_DRAW, -1) for pairs in (similar, dissimilar)], axis=2
    ).swapaxes(0, 1)


def bound_gradient(
    W: Float[np.ndarray, "features bits"],
    one: Float[np.ndarray, "pairs features"],
    other: Float[np.ndarray, "pairs features"],
    costs: Float[np.ndarray, "pairs distances"],
) -> Float[np.ndarray, "features bits"]:
    """Return the gradient of the upper bound, a mean over pairs.

    The bound of a pair is max(cost + g·W'one + h·W'other) − max(g·W'one + h·W'other) over codes g
    and h.
    """
    one_projected, other_projected = one @ W, other @ W
    g, h = costliest_codes(one_projected, other_projected, costs)
    one_errors = g.astype(W.dtype) - (one_projected > 0)
    other_errors = h.astype(W.dtype) - (other_projected > 0)
    total: np.ndarray = one.T @ one_errors + other.T @ other_errors
    return total / len(one)


def hinge_costs(
    n_bits: int, radius: float, dissimilar_weight: float
) -> Float[np.ndarray, "2 distances"]:
    """Return the cost of each Hamming distance: of a similar pair in row 0, dissimilar in row 1.

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
    """Return the codes g, h of each pair that maximise cost(distance of g and h) + g·one + h·other.

    Exact loss-augmented inference: the best codes at distance d differ in the d bits with the
    highest gain, so one sort of the bits gives the best codes for every distance.
    """
    # Change of g·one + h·other when g and h differ in a bit instead of agree.
    gains = np.maximum(one, other) - np.maximum(one + other, 0)
    order = np.argsort(-gains, axis=1)
    totals = np.zeros_like(costs)
    np.cumsum(np.take_along_axis(gains, order, axis=1), axis=1, out=totals[:, 1:])
    distances = np.argmax(totals + costs, axis=1)
    differs = np.empty(gains.shape, dtype=bool)
    positions = np.arange(gains.shape[1])
    np.put_along_axis(differs, order, positions < distances[:, None], axis=1)
    larger, agreed = one > other, one + other > 0
    return np.where(differs, larger, agreed), np.where(differs, ~larger, agreed)
