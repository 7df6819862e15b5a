"""The sums of the compiled triplet kernel in plain tensor operations, on any device.

They also serve triplets that are given one by one. `orbithash.kernels.triplets` explains the
algebra. Here some anchors at a time are laid out as (anchor, positive, negative) tensors.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int16, Int64
from torch import Tensor

CHUNK = 2**22  # (anchor, positive, negative) triples at a time
NOT_IN_LIST = torch.iinfo(torch.int16).max  # larger than any Hamming distance: sorts last


class RankedItems(NamedTuple):
    """Ranks of items in their anchors' lists, and the terms from which a swap's weight is made.

    Swapping a positive at rank j with a negative at rank k changes average precision by the sum of
    their `misranked` terms if k < j, and of their `ordered` terms if j < k. Swapping any two items
    changes NDCG by the difference of their gains times the difference of their discounts.
    """

    rank: Int64[Tensor, "..."]
    misranked: Float[Tensor, "..."]
    ordered: Float[Tensor, "..."]
    gain: Float[Tensor, "..."]
    discount: Float[Tensor, "..."]

    def take(self, *index: Tensor | slice | None) -> "RankedItems":
        return RankedItems(*(table[index] for table in self))


class AnchorSums(NamedTuple):
    """Sums over the triplets of each anchor, in the order of the kernel's result."""

    totals: Float[Tensor, " anchors"]  # Σ λ·hinge^γ
    weights: Float[Tensor, " anchors"]  # Σ λ
    triplets: Float[Tensor, " anchors"]  # number of triplets
    active: Float[Tensor, " anchors"]  # number of triplets with hinge > 0
    gradient: Float[Tensor, "anchors list"]  # of the totals, with respect to the distances


def rank_items(
    hamming: Int16[Tensor, "anchors list"],
    grades: Int16[Tensor, "anchors list"],
    tie_keys: Float[Tensor, "anchors list"] | None,
    dtype: torch.dtype,
) -> RankedItems:
    """Sort every anchor's list: by Hamming distance, then by `tie_keys`, then by position."""
    keys = hamming.masked_fill(grades < 0, NOT_IN_LIST)
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
    # The terms of a positive, then of a negative, as the kernel's docstring writes them.
    misranked = torch.where(
        positive, reciprocals - reciprocal - precision, precision + reciprocal - reciprocals
    )
    ordered = torch.where(positive, precision - reciprocals, reciprocals - precision)

    # 2^grade − 1, relative to the highest grade of the list: many labels must not overflow.
    grade = grades.clamp_min(0).to(dtype)
    highest = grade.amax(dim=1, keepdim=True) if grade.numel() else grade
    gain = torch.exp2(grade - highest) - torch.exp2(-highest)
    discounts = 1 / torch.log2(ranks.to(dtype) + 1)
    ideal = (gain.sort(dim=1, descending=True).values * discounts).sum(dim=1, keepdim=True)
    return RankedItems(
        rank=rank,
        misranked=(misranked / n_positives).gather(1, rank - 1),
        ordered=(ordered / n_positives).gather(1, rank - 1),
        gain=torch.where(ideal > 0, gain / ideal, 0),
        discount=discounts[rank - 1],
    )


def swap_weights(
    positive: RankedItems, negative: RankedItems, weighting: str
) -> Float[Tensor, "..."]:
    """Return λ: how much the score of the list changes when the two items swap ranks."""
    if weighting == "none":
        return torch.ones_like(positive.misranked + negative.misranked)
    if weighting == "ndcg":
        return (positive.gain - negative.gain).abs() * (positive.discount - negative.discount).abs()
    return torch.where(
        negative.rank < positive.rank,
        positive.misranked + negative.misranked,
        positive.ordered + negative.ordered,
    )


def are_triplets(
    positive: Int16[Tensor, "..."], negative: Int16[Tensor, "..."], weighting: str
) -> Bool[Tensor, "..."]:
    """Compare two items' grades: related and unrelated, or for NDCG more and less related."""
    if weighting == "ndcg":
        return (positive > negative) & (negative >= 0)
    return (positive > 0) & (negative == 0)


def sum_triplets(
    distances: Float[Tensor, "anchors list"],
    hamming: Int16[Tensor, "anchors list"],
    grades: Int16[Tensor, "anchors list"],
    tie_keys: Float[Tensor, "anchors list"] | None,
    margin: float,
    gamma: float,
    weighting: str,
) -> AnchorSums:
    """Sum over all triplets of every anchor, in chunks of anchors and positives."""
    ranked = rank_items(hamming, grades, tie_keys, distances.dtype)
    n_anchors, n_list = distances.shape
    totals, weight_sums, triplets, active = distances.new_zeros(4, n_anchors)
    gradient = torch.zeros_like(distances)
    anchors_at_once = max(1, CHUNK // max(1, n_list**2))
    positives_at_once = max(1, CHUNK // max(1, anchors_at_once * n_list))
    for anchor in range(0, n_anchors, anchors_at_once):
        for positive in range(0, n_list, positives_at_once):
            rows = slice(anchor, anchor + anchors_at_once)
            columns = slice(positive, positive + positives_at_once)
            # [anchor, positive, negative]
            exists = are_triplets(grades[rows, columns, None], grades[rows, None], weighting)
            weights = exists * swap_weights(
                ranked.take(rows, columns, None), ranked.take(rows, None), weighting
            )
            hinge = (margin + distances[rows, columns, None] - distances[rows, None]).clamp_min(0)
            is_active = hinge > 0
            slope = weights * torch.where(is_active, hinge ** (gamma - 1), 0)  # without factor γ
            totals[rows] += (slope * hinge).sum(dim=(1, 2))
            weight_sums[rows] += weights.sum(dim=(1, 2))
            triplets[rows] += exists.sum(dim=(1, 2))
            active[rows] += (exists & is_active).sum(dim=(1, 2))
            gradient[rows, columns] += gamma * slope.sum(dim=2)
            gradient[rows] -= gamma * slope.sum(dim=1)
    return AnchorSums(totals, weight_sums, triplets, active, gradient)
