"""Weights, loss and gradient of all triplets in plain tensor operations, on any device.

The counterpart of the compiled `orbithash.kernels.swaps`, which explains the algebra. Here the
pairs of some anchors at a time are laid out as tensors.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int16, Int64
from torch import Tensor

CHUNK = 2**22  # (anchor, positive, negative) triples at a time
LAST = torch.iinfo(torch.int16).max  # further than any code


class Places(NamedTuple):
    """Where the items stand in the anchors' lists, and what each adds to the weight of a swap.

    A positive at rank j and a negative at rank k change the average precision by the sum of their
    `wrong` terms if k < j, and of their `right` terms if j < k. The swap of any two changes NDCG by
    the difference of their gains times that of their discounts.
    """

    rank: Int64[Tensor, "..."]
    wrong: Float[Tensor, "..."]
    right: Float[Tensor, "..."]
    gain: Float[Tensor, "..."]
    discount: Float[Tensor, "..."]

    def take(self, *index: Tensor | slice | None) -> "Places":
        return Places(*(table[index] for table in self))


class Terms(NamedTuple):
    """What the triplets of each anchor add up to; see `orbithash.kernels.swaps.Terms`."""

    totals: Float[Tensor, " anchors"]
    weights: Float[Tensor, " anchors"]
    triplets: Float[Tensor, " anchors"]
    active: Float[Tensor, " anchors"]
    slopes: Float[Tensor, "anchors list"]


def places_in_lists(
    hamming: Int16[Tensor, "anchors list"],
    grades: Int16[Tensor, "anchors list"],
    tie_keys: Float[Tensor, "anchors list"] | None,
    dtype: torch.dtype,
) -> Places:
    """Sort every anchor's list: by Hamming distance, then by `tie_keys`, then by position."""
    keys = hamming.masked_fill(grades < 0, LAST)
    if tie_keys is None:
        order = keys.argsort(dim=1, stable=True)
    else:
        by_tie_key = tie_keys.argsort(dim=1, stable=True)
        order = by_tie_key.gather(1, keys.gather(1, by_tie_key).argsort(dim=1, stable=True))
    rank = torch.empty_like(order)
    ranks = torch.arange(1, order.shape[1] + 1, device=order.device)
    rank.scatter_(1, order, ranks.expand_as(order))

    positive = grades.gather(1, order) > 0
    n_positives = positive.sum(dim=1, keepdim=True).clamp_min(1)
    reciprocal = 1 / ranks.to(dtype)
    precision = positive.cumsum(dim=1) * reciprocal
    reciprocals = (positive * reciprocal).cumsum(dim=1)
    # Terms of a positive, then of a negative, as `kernels.swaps` writes them.
    wrong = torch.where(
        positive, reciprocals - reciprocal - precision, precision + reciprocal - reciprocals
    )
    right = torch.where(positive, precision - reciprocals, reciprocals - precision)

    # 2^grade − 1, relative to the highest in the list, so that many labels do not overflow.
    grade = grades.clamp_min(0).to(dtype)
    highest = grade.amax(dim=1, keepdim=True) if grade.numel() else grade
    gain = torch.exp2(grade - highest) - torch.exp2(-highest)
    discounts = 1 / torch.log2(ranks.to(dtype) + 1)
    ideal = (gain.sort(dim=1, descending=True).values * discounts).sum(dim=1, keepdim=True)
    return Places(
        rank=rank,
        wrong=(wrong / n_positives).gather(1, rank - 1),
        right=(right / n_positives).gather(1, rank - 1),
        gain=torch.where(ideal > 0, gain / ideal, 0),
        discount=discounts[rank - 1],
    )


def swap_weights(positive: Places, negative: Places, weighting: str) -> Float[Tensor, "..."]:
    """λ: how much the score of the list changes when the two swap places."""
    if weighting == "none":
        return torch.ones_like(positive.wrong + negative.wrong)
    if weighting == "ndcg":
        return (positive.gain - negative.gain).abs() * (positive.discount - negative.discount).abs()
    return torch.where(
        negative.rank < positive.rank,
        positive.wrong + negative.wrong,
        positive.right + negative.right,
    )


def are_triplets(
    positive: Int16[Tensor, "..."], negative: Int16[Tensor, "..."], weighting: str
) -> Bool[Tensor, "..."]:
    """By the grades of two items: related and unrelated, or for NDCG more related and less."""
    if weighting == "ndcg":
        return (positive > negative) & (negative >= 0)
    return (positive > 0) & (negative == 0)


def triplet_terms(
    distances: Float[Tensor, "anchors list"],
    hamming: Int16[Tensor, "anchors list"],
    grades: Int16[Tensor, "anchors list"],
    *,
    margin: float,
    gamma: float,
    weighting: str,
    tie_keys: Float[Tensor, "anchors list"] | None,
) -> Terms:
    """The terms of every anchor, some anchors and positives at a time."""
    places = places_in_lists(hamming, grades, tie_keys, distances.dtype)
    n_anchors, n_list = distances.shape
    totals, weights_sum, triplets, active = distances.new_zeros(4, n_anchors)
    terms = Terms(totals, weights_sum, triplets, active, torch.zeros_like(distances))
    anchors_at_once = max(1, CHUNK // max(1, n_list**2))
    positives_at_once = max(1, CHUNK // max(1, anchors_at_once * n_list))
    for anchor in range(0, n_anchors, anchors_at_once):
        for positive in range(0, n_list, positives_at_once):
            rows = slice(anchor, anchor + anchors_at_once)
            columns = slice(positive, positive + positives_at_once)
            # [anchor, positive, negative]
            exists = are_triplets(grades[rows, columns, None], grades[rows, None], weighting)
            weights = exists * swap_weights(
                places.take(rows, columns, None), places.take(rows, None), weighting
            )
            hinge = (margin + distances[rows, columns, None] - distances[rows, None]).clamp_min(0)
            is_active = hinge > 0
            pull = weights * torch.where(is_active, hinge ** (gamma - 1), 0)
            terms.totals[rows] += (pull * hinge).sum(dim=(1, 2))
            terms.weights[rows] += weights.sum(dim=(1, 2))
            terms.triplets[rows] += exists.sum(dim=(1, 2))
            terms.active[rows] += (exists & is_active).sum(dim=(1, 2))
            terms.slopes[rows, columns] += gamma * pull.sum(dim=2)
            terms.slopes[rows] -= gamma * pull.sum(dim=1)
    return terms
