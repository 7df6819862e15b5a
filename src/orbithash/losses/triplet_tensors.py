"""Pure-torch version of the compiled triplet kernel, for any device.

Each anchor has a list of all other items, ranked by Hamming distance. An item's grade is the number
of labels that it shares with the anchor, or any other number from 0 on; it is −1 if the item is not
in the list, like the anchor itself. The loss is Σ λ·hinge^γ over triplets (anchor, positive,
negative):

    hinge   max(margin + distance of the positive − distance of the negative, 0)
    λ       change of the list's score (AP or NDCG) if positive and negative swap ranks

`orbithash.kernels.triplets` derives λ for AP. Anchors are processed in chunks, as (anchor,
positive, negative) tensors. Explicit triplets, such as a miner's, use the same ranks and weights.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int16, Int64, Real
from torch import Tensor

CHUNK = 2**22  # number of (anchor, positive, negative) entries computed at once
NOT_IN_LIST = torch.iinfo(torch.int16).max  # larger than any Hamming distance: sorts last


class RankedItems(NamedTuple):
    """Ranks of items in their anchors' lists, and the per-item terms of the swap weight λ.

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
        """Index every field."""
        return RankedItems(*(field[index] for field in self))


class AnchorSums(NamedTuple):
    """Sums over the triplets of each anchor: the kernel's `AnchorSums`, as tensors."""

    losses: Float[Tensor, " anchors"]  # Σ λ·hinge^γ
    weights: Float[Tensor, " anchors"]  # Σ λ
    triplets: Float[Tensor, " anchors"]  # number of triplets
    active: Float[Tensor, " anchors"]  # number of triplets with hinge > 0
    gradients: Float[Tensor, "anchors list"]  # of each anchor's loss, by its distances


def rank_items(
    hamming: Int16[Tensor, "anchors list"],
    grades: Real[Tensor, "anchors list"],
    tie_keys: Float[Tensor, "anchors list"] | None,
    dtype: torch.dtype,
) -> RankedItems:
    """Rank every anchor's list: by Hamming distance, then by `tie_keys`, then by position.

    Items with grade −1 are not in the list and rank last.
    """
    keys = hamming.masked_fill(grades < 0, NOT_IN_LIST)
    if tie_keys is None:
        order = keys.argsort(dim=1, stable=True)
    else:
        by_tie_key = tie_keys.argsort(dim=1, stable=True)
        order = by_tie_key.gather(1, keys.gather(1, by_tie_key).argsort(dim=1, stable=True))
    rank = torch.empty_like(order)
    ranks = torch.arange(1, order.shape[1] + 1, device=order.device)
    rank.scatter_(1, order, ranks.expand_as(order))

    # Terms of ΔAP in rank order. In the kernel's notation, precision is c(p)/p and S is S(p).
    is_positive = grades.gather(1, order) > 0
    n_positives = is_positive.sum(dim=1, keepdim=True).clamp_min(1)
    inverse_rank = 1 / ranks.to(dtype)
    precision = is_positive.cumsum(dim=1) * inverse_rank
    S = (is_positive * inverse_rank).cumsum(dim=1)
    # b(j) of a positive, a(k) of a negative
    misranked = torch.where(is_positive, S - inverse_rank - precision, precision + inverse_rank - S)
    # e(j) of a positive, f(k) of a negative
    ordered = torch.where(is_positive, precision - S, S - precision)

    # NDCG's gain 2^grade − 1, scaled by 2^−highest so that high grades do not overflow.
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
    """Return λ by AP ("ap") or NDCG ("ndcg"), or 1 ("none")."""
    if weighting == "ap":
        return torch.where(
            negative.rank < positive.rank,
            positive.misranked + negative.misranked,
            positive.ordered + negative.ordered,
        )
    if weighting == "ndcg":
        return (positive.gain - negative.gain).abs() * (positive.discount - negative.discount).abs()
    return torch.ones_like(positive.misranked + negative.misranked)  # the sum has the right shape


def are_triplets(
    positive_grades: Real[Tensor, "..."], negative_grades: Real[Tensor, "..."], graded: bool
) -> Bool[Tensor, "..."]:
    """Return whether two items form a triplet with the anchor.

    The positive must be related and the negative unrelated; if `graded`, the positive must have
    the higher grade.
    """
    if graded:
        return (positive_grades > negative_grades) & (negative_grades >= 0)
    return (positive_grades > 0) & (negative_grades == 0)


def sum_triplets(
    distances: Float[Tensor, "anchors list"],
    hamming: Int16[Tensor, "anchors list"],
    grades: Real[Tensor, "anchors list"],
    tie_keys: Float[Tensor, "anchors list"] | None,
    margin: float,
    gamma: float,
    weighting: str,
    graded: bool,
) -> AnchorSums:
    """Sum over all triplets of every anchor, in chunks of anchors and of their lists."""
    ranked = rank_items(hamming, grades, tie_keys, distances.dtype)
    n_anchors, n_list = distances.shape
    losses, weight_sums, triplets, active = distances.new_zeros(4, n_anchors)
    gradients = torch.zeros_like(distances)
    row_step = max(1, CHUNK // max(1, n_list**2))
    column_step = max(1, CHUNK // max(1, row_step * n_list))
    for row_start in range(0, n_anchors, row_step):
        for column_start in range(0, n_list, column_step):
            rows = slice(row_start, row_start + row_step)  # anchors
            columns = slice(column_start, column_start + column_step)  # candidate positives
            # All tensors are [anchor, positive, negative].
            exists = are_triplets(grades[rows, columns, None], grades[rows, None], graded)
            weights = exists * swap_weights(
                ranked.take(rows, columns, None), ranked.take(rows, None), weighting
            )
            hinge = (margin + distances[rows, columns, None] - distances[rows, None]).clamp_min(0)
            is_active = hinge > 0
            # λ·hinge^(γ−1): times hinge it is the loss, times ±γ its derivative by the distances.
            slope = weights * torch.where(is_active, hinge ** (gamma - 1), 0)
            losses[rows] += (slope * hinge).sum(dim=(1, 2))
            weight_sums[rows] += weights.sum(dim=(1, 2))
            triplets[rows] += exists.sum(dim=(1, 2))
            active[rows] += (exists & is_active).sum(dim=(1, 2))
            gradients[rows, columns] += gamma * slope.sum(dim=2)
            gradients[rows] -= gamma * slope.sum(dim=1)
    return AnchorSums(losses, weight_sums, triplets, active, gradients)
