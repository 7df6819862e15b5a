"""BRE: binary reconstructive embeddings."""

import logging
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from sklearn.preprocessing import normalize as unit_rows
from sklearn.utils import check_random_state

from orbithash.hashers.base import Hasher, dissimilar_pairs, multi_hot, sigmoid, similar_pairs

logger = logging.getLogger("orbithash")

NEIGHBOUR_SHARE = 0.05  # without labels, this share of the pairs gets the target distance 0


class BinaryReconstructiveEmbedding(Hasher):
    """Hyperplanes whose codes have Hamming distances that match the distances of training pairs.

    Distances are shares of the bits, from 0 to 1. With labels (the supervised form), the target
    distance is 0 for similar pairs and 1 (all bits differ) for others; half of the pairs are
    similar. Without labels, it is half the squared Euclidean distance of centred unit vectors, at
    most 1, and 0 for the nearest 5 % of the pairs.

    Every bit is the sign of a weighted sum of inner products with its landmarks, random training
    vectors. The objective is the sum over pairs of squared differences between Hamming and target
    distance. It is minimised exactly in one weight at a time: bits change only where the weight
    crosses a row's threshold, so sorting the thresholds gives the objective at every value.
    `objective_` is its mean over pairs, before the first pass over the weights and after each.

    Kulis and Darrell, "Learning to Hash with Binary Reconstructive Embeddings", NIPS 2009.

    Args:
        n_training: Number of random rows to fit to.
        n_pairs: Number of random pairs per training row.
        n_landmarks: Number of landmarks of each bit.
        n_passes: Number of passes over all weights.
    """

    def __init__(
        self,
        n_bits: int = 32,
        *,
        n_training: int = 2000,
        n_pairs: int = 50,
        n_landmarks: int = 50,
        n_passes: int = 2,
        normalize: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_training, self.n_pairs = n_training, n_pairs
        self.n_landmarks, self.n_passes = n_landmarks, n_passes
        self.normalize, self.random_state = normalize, random_state

    def fit(self, X: Any, y: Any = None) -> "BinaryReconstructiveEmbedding":
        X = self._check_and_normalize_training(X)
        rng = check_random_state(self.random_state)
        self.mean_ = X.mean(axis=0)
        rows = rng.permutation(len(X))[: self.n_training]
        # Unit length is for the targets. `project` skips it: it does not change a bit's sign.
        directions = unit_rows(X[rows] - self.mean_)
        n_pairs = self.n_pairs * len(rows)
        if y is None:
            pairs, targets = vector_targets(directions, n_pairs, rng)
        else:
            pairs, targets = label_targets(multi_hot(X, y)[rows], n_pairs, rng)
        self.hyperplanes_ = self._descend(directions, pairs, targets, rng)
        return self

    def project(self, X: Any) -> Float[np.ndarray, "n bits"]:
        return sigmoid((self._check_and_normalize_new(X) - self.mean_) @ self.hyperplanes_)

    def _descend(
        self,
        X: Float[np.ndarray, "n features"],
        pairs: Int[np.ndarray, "2 pairs"],
        targets: Float[np.ndarray, " pairs"],
        rng: np.random.RandomState,
    ) -> Float[np.ndarray, "features bits"]:
        landmarks = [rng.permutation(len(X))[: self.n_landmarks] for _ in range(self.n_bits)]
        weights = rng.standard_normal((self.n_bits, len(landmarks[0])))
        hyperplanes = np.stack([w @ X[rows] for w, rows in zip(weights, landmarks, strict=True)])
        bits = X @ hyperplanes.T > 0
        distances = (bits[pairs[0]] != bits[pairs[1]]).mean(axis=1)
        self.objective_ = [float(((targets - distances) ** 2).mean())]
        for number in range(self.n_passes):
            for bit in rng.permutation(self.n_bits):
                before = bits[:, bit]
                other_bits = distances - (before[pairs[0]] != before[pairs[1]]) / self.n_bits
                # Change of the objective if the bits of a pair differ instead of agree.
                costs = 1 / self.n_bits**2 - 2 * (targets - other_bits) / self.n_bits
                kernel = X @ X[landmarks[bit]].T
                after = descend_bit(weights[bit], kernel, pairs, costs, rng)
                bits[:, bit] = after
                distances = other_bits + (after[pairs[0]] != after[pairs[1]]) / self.n_bits
            self.objective_.append(float(((targets - distances) ** 2).mean()))
            logger.info(
                "BRE: pass %d of %d, objective %.4f", number + 1, self.n_passes, self.objective_[-1]
            )
        return np.stack([w @ X[rows] for w, rows in zip(weights, landmarks, strict=True)], axis=1)


def vector_targets(
    directions: Float[np.ndarray, "n features"], n_pairs: int, rng: np.random.RandomState
) -> tuple[Int[np.ndarray, "2 {n_pairs}"], Float[np.ndarray, " {n_pairs}"]]:
    """Draw random pairs of unit vectors; return them with the target distances of their codes."""
    one = rng.randint(len(directions), size=n_pairs)
    other = (one + rng.randint(1, len(directions), size=n_pairs)) % len(directions)
    cosines = np.einsum("pf,pf->p", directions[one], directions[other])
    targets = np.clip(1 - cosines, 0, 1)
    targets[targets <= np.quantile(targets, NEIGHBOUR_SHARE)] = 0
    return np.stack([one, other]), targets


def label_targets(
    labels: Bool[np.ndarray, "n classes"], n_pairs: int, rng: np.random.RandomState
) -> tuple[Int[np.ndarray, "2 {n_pairs}"], Float[np.ndarray, " {n_pairs}"]]:
    """Draw random pairs, half of them similar; return them with their target distances."""
    n_similar = n_pairs // 2
    similar = similar_pairs(labels, n_similar, rng)
    dissimilar = dissimilar_pairs(labels, n_pairs - n_similar, rng)
    return np.concatenate([similar, dissimilar]).T, (np.arange(n_pairs) >= n_similar).astype(float)


def descend_bit(
    weights: Float[np.ndarray, " landmarks"],
    kernel: Float[np.ndarray, "n landmarks"],
    pairs: Int[np.ndarray, "2 pairs"],
    costs: Float[np.ndarray, " pairs"],
    rng: np.random.RandomState,
) -> Bool[np.ndarray, " n"]:
    """Set each weight of one bit to its best value in turn, in place; return the bits."""
    projections = kernel @ weights
    for landmark in rng.permutation(len(weights)):
        column = kernel[:, landmark]
        offsets = projections - weights[landmark] * column  # projections on the other landmarks
        weights[landmark] = best_weight(weights[landmark], column, offsets, pairs, costs)
        projections = offsets + weights[landmark] * column
    bits: np.ndarray = kernel @ weights > 0
    return bits


def best_weight(
    weight: float,
    column: Float[np.ndarray, " n"],
    offsets: Float[np.ndarray, " n"],
    pairs: Int[np.ndarray, "2 pairs"],
    costs: Float[np.ndarray, " pairs"],
) -> float:
    """Return the w that minimises the sum of costs of the pairs whose bits differ.

    The bits are `offsets + w * column > 0`. `weight` is the current w; it is returned if no other
    is better.
    """
    depends = column != 0  # rows whose bit depends on w
    n_flips = int(depends.sum())
    if n_flips == 0:
        return weight
    # As w grows from −∞, bits flip in the order of their thresholds.
    thresholds = np.divide(-offsets, column, out=np.full_like(offsets, np.inf), where=depends)
    order = np.argsort(thresholds)
    thresholds = thresholds[order][:n_flips]
    initial_bits = np.where(depends, column < 0, offsets > 0)
    objective = objective_by_flips(order, initial_bits, pairs, costs)[: n_flips + 1]
    current = objective[np.searchsorted(thresholds, weight)]
    objective[1:-1][np.diff(thresholds) <= 0] = np.inf  # between equal thresholds there is no w

    best = int(np.argmin(objective))
    if objective[best] >= current:
        return weight
    if best == 0:
        return float(thresholds[0] - 1)
    if best == n_flips:
        return float(thresholds[-1] + 1)
    return float((thresholds[best - 1] + thresholds[best]) / 2)


def objective_by_flips(
    order: Int[np.ndarray, " n"],
    initial_bits: Bool[np.ndarray, " n"],
    pairs: Int[np.ndarray, "2 pairs"],
    costs: Float[np.ndarray, " pairs"],
) -> Float[np.ndarray, " flips"]:
    """Return the sum of costs of the pairs that differ, after 0 … n flips, relative to no flip.

    Each row's bit flips once, in the given order. Three rows, whose bits agree at first:

    >>> pairs, costs = np.array([[0, 0], [1, 2]]), np.array([5.0, -1.0])
    >>> objective_by_flips(np.array([0, 1, 2]), np.zeros(3, dtype=bool), pairs, costs)
    array([ 0.,  4., -1.,  0.])
    """
    n = len(order)
    rank = np.empty_like(order)
    rank[order] = np.arange(n)
    one, other = rank.take(pairs[0]), rank.take(pairs[1])
    agree = initial_bits.take(pairs[0]) == initial_bits.take(pairs[1])
    # The flip of row `one` makes the pair differ if it is the pair's first flip and the bits agree
    # before, or its second and they differed before. The flip of `other` has the opposite effect.
    changes = np.where(agree == (one < other), costs, -costs)
    steps = np.bincount(one, changes, n) - np.bincount(other, changes, n)
    return np.concatenate([[0], steps.cumsum()])
