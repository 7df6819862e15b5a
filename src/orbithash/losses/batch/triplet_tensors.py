"""Pure-torch version of the compiled triplet kernel, for any device.

Each anchor has a list of all other items, ranked by Hamming distance. An item's grade is the number
of labels that it shares with the anchor, or any other number from 0 on; it is −1 if the item is not
in the list, like the anchor itself. The loss is Σ λ·hinge^γ over triplets (anchor, positive,
negative):

    hinge   max(margin + distance of the positive − distance of the negative, 0)
    λ       change of the list's score (AP or NDCG) if positive and negative swap ranks

`orbithash.kernels.triplets.sums` derives λ for AP. The positives of each list are gathered into a
table as wide as the largest number of them, so that the work grows with anchors · positives ·
items; `orbithash.losses.batch.pair_tensors` does it, in chunks. Explicit triplets, such as a
miner's, use the same ranks and weights.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int16, Int64, Real
from torch import Tensor

from orbithash.losses.batch.pair_tensors import FAR, Binary, Graded, sum_chunks

CHUNK = 2**20  # number of (anchor, positive, item) entries, or of (anchor, item), computed at once
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


class BatchSums(NamedTuple):
    """Sums over the triplets of all anchors."""

    losses: Float[Tensor, ""]  # Σ λ·hinge^γ
    weights: Float[Tensor, ""]  # Σ λ
    triplets: Tensor  # number of triplets
    active: Tensor  # number of triplets with hinge > 0
    anchors: Tensor  # number of anchors with triplets
    gradients: Float[Tensor, "anchors list"]  # of the losses, by the distances


def rank_order(
    hamming: Int16[Tensor, "anchors list"],
    grades: Real[Tensor, "anchors list"],
    tie_keys: Float[Tensor, "anchors list"] | None,
) -> Int64[Tensor, "anchors list"]:
    """Sort every anchor's list: by Hamming distance, then by `tie_keys`, then by position.

    Items with grade −1 are not in the list and come last.
    """
    keys = hamming.masked_fill(grades < 0, NOT_IN_LIST)
    if tie_keys is None:
        return keys.argsort(dim=1, stable=True)
    if tie_keys.dtype == torch.float32:
        # One sort of both: a non-negative float sorts like the integer with the same bits.
        return (keys.long() << 32 | tie_keys.view(torch.int32)).argsort(dim=1, stable=True)
    by_tie_key = tie_keys.argsort(dim=1, stable=True)
    return by_tie_key.gather(1, keys.gather(1, by_tie_key).argsort(dim=1, stable=True))


def rank_items(
    hamming: Int16[Tensor, "anchors list"],
    grades: Real[Tensor, "anchors list"],
    tie_keys: Float[Tensor, "anchors list"] | None,
    dtype: torch.dtype,
) -> RankedItems:
    """Rank every anchor's list: by Hamming distance, then by `tie_keys`, then by position.

    Items with grade −1 are not in the list and rank last.
    """
    order = rank_order(hamming, grades, tie_keys)
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
    max_positives: int | None = None,
) -> BatchSums:
    """Sum over all triplets of every anchor, in blocks of anchors.

    `max_positives` is at least the number of positives of any list. Without it, the number is read
    from the device: the only value that the host waits for.
    """
    n_anchors, n_list = distances.shape
    if max_positives is None:
        max_positives = int((grades > 0).sum(dim=1).max()) if grades.numel() else 0
    n_positives = min(max_positives, n_list)
    if n_positives == 0 or n_anchors == 0:
        losses, weights, triplets, active, anchors = (distances.new_zeros(()) for _ in range(5))
        gradients = torch.zeros_like(distances)
        return BatchSums(losses, weights, triplets, active, anchors, gradients)
    sum_block = _sum_graded if graded else _sum_binary
    n_rows = min(n_anchors, max(1, CHUNK // n_list))
    buffers = distances.new_empty(2, min(max(CHUNK, n_list), n_rows * n_positives * n_list))
    gradients = torch.empty_like(distances)
    blocks: list[BatchSums] = []
    for start in range(0, n_anchors, n_rows):
        rows = slice(start, start + n_rows)
        block_distances, block_grades, order = distances[rows], grades[rows], None
        if weighting != "none":  # the rest is in rank order
            block_tie_keys = None if tie_keys is None else tie_keys[rows]
            order = rank_order(hamming[rows], block_grades, block_tie_keys)
            block_distances = block_distances.gather(1, order)
            block_grades = block_grades.gather(1, order)
        block = sum_block(
            block_distances, block_grades, margin, gamma, order is not None, n_positives, buffers
        )
        if order is not None:
            in_list_order = torch.empty_like(block.gradients).scatter_(1, order, block.gradients)
            block = block._replace(gradients=in_list_order)
        if n_rows == n_anchors:
            return block
        gradients[rows] = block.gradients
        blocks.append(block)
    losses, weights, triplets, active, anchors = (
        torch.stack(parts).sum() for parts in zip(*(block[:5] for block in blocks), strict=True)
    )
    return BatchSums(losses, weights, triplets, active, anchors, gradients)


def wide(numbers: Tensor) -> torch.dtype:
    """Return the type of sums: float64, where the device has it."""
    return numbers.dtype if numbers.device.type == "mps" else torch.float64


def _sum_binary(
    distances: Float[Tensor, "anchors list"],
    grades: Real[Tensor, "anchors list"],
    margin: float,
    gamma: float,
    weighted: bool,
    n_positives: int,
    buffers: Float[Tensor, "2 entries"],
) -> BatchSums:
    """Sum over the triplets (anchor, related, unrelated) of a block of anchors.

    Lists are in rank order, if triplets are `weighted`; so are the gradients.
    """
    positives = _Positives(grades, n_positives)
    positive, negative = ((grades > 0).to(wide(distances)), (grades == 0).to(wide(distances)))
    n_positive, n_negative = positive.sum(dim=1, keepdim=True), negative.sum(dim=1, keepdim=True)
    triplets = n_positive * n_negative

    # In the kernel's notation q = c(p)/p − S(p) and u = 2q + 1/p, both divided by R. The terms of λ
    # are a = u − q and f = −q of a negative, b = q − u and e = q of a positive.
    inverse_rank = 1 / torch.arange(1, grades.shape[1] + 1, device=grades.device).to(positive)
    q = positive.cumsum(dim=1) * inverse_rank - (positive * inverse_rank).cumsum(dim=1)
    q /= n_positive.clamp_min(1)
    u = 2 * q + inverse_rank / n_positive.clamp_min(1)
    weights = triplets
    if weighted:
        of_positives = n_negative * q - (negative * q).sum(dim=1, keepdim=True)
        of_positives += (negative * u).cumsum(dim=1) - negative.cumsum(dim=1) * u
        weights = of_positives.mul_(positive)

    ranks = torch.arange(grades.shape[1], device=grades.device).to(distances).expand_as(distances)
    q, u = q.to(distances.dtype), u.to(distances.dtype)
    sums = sum_chunks(
        Binary(
            positives.take(distances + margin, otherwise=-FAR),
            positives.positions.to(distances.dtype),
            positives.take(q),
            positives.take(u),
        ),
        Binary(torch.add(distances, (grades != 0).to(distances.dtype), alpha=FAR), ranks, q, u),
        gamma,
        weighted,
        buffers,
    )
    gradients = positives.add_to(-sums.by_item, sums.by_positive)
    return BatchSums(
        losses=sums.losses,
        weights=weights.sum(),
        triplets=triplets.sum().long(),
        active=sums.active,
        anchors=(triplets > 0).sum(),
        gradients=gamma * gradients,
    )


def _sum_graded(
    distances: Float[Tensor, "anchors list"],
    grades: Real[Tensor, "anchors list"],
    margin: float,
    gamma: float,
    weighted: bool,
    n_positives: int,
    buffers: Float[Tensor, "2 entries"],
) -> BatchSums:
    """Sum over the triplets (anchor, higher grade, lower grade) of a block of anchors.

    Lists are in rank order, if triplets are `weighted`; so are the gradients.
    """
    positives = _Positives(grades, n_positives)
    not_ranked = (grades < 0).to(distances.dtype)

    # NDCG's gain 2^grade − 1, scaled by 2^−highest so that high grades do not overflow.
    grade = grades.clamp_min(0).to(wide(distances))
    highest = grade.amax(dim=1, keepdim=True)
    gains = torch.exp2(grade - highest) - torch.exp2(-highest)
    discounts = 1 / torch.log2(torch.arange(grades.shape[1], device=grades.device).to(grade) + 2)
    best_first = positives.take(gains, otherwise=0).sort(dim=1, descending=True).values
    ideal = (best_first * discounts[:n_positives]).sum(dim=1, keepdim=True)
    gains = torch.where(ideal > 0, gains / ideal, 0).to(distances.dtype)
    discounts = discounts.to(distances.dtype).expand_as(distances)

    lowest = torch.where(grades < 0, torch.inf, grade).amin(dim=1, keepdim=True)
    grade = grade.to(distances.dtype)
    sums = sum_chunks(
        Graded(
            positives.take(distances + margin, otherwise=-FAR),
            positives.take(grade, otherwise=-1),
            positives.take(gains, otherwise=-FAR),
            positives.take(discounts),
        ),
        Graded(
            torch.add(distances, not_ranked, alpha=FAR),
            torch.where(grades < 0, torch.inf, grade),
            torch.add(gains, not_ranked, alpha=FAR),
            discounts,
        ),
        gamma,
        weighted,
        buffers,
    )
    gradients = positives.add_to(-sums.by_item, sums.by_positive)
    return BatchSums(
        losses=sums.losses,
        weights=sums.weights,
        triplets=sums.triplets,
        active=sums.active,
        anchors=(highest > lowest).sum(),
        gradients=gamma * gradients,
    )


class _Positives:
    """The positions of each list's positives, in a table whose rows are padded with the length."""

    def __init__(self, grades: Real[Tensor, "anchors list"], n_positives: int) -> None:
        n_anchors, n_list = grades.shape
        is_positive = grades > 0
        # Other items go to one more column, which is dropped.
        columns = is_positive.cumsum(dim=1).sub_(1).masked_fill_(~is_positive, n_positives)
        positions = columns.new_full((n_anchors, n_positives + 1), n_list)
        items = torch.arange(n_list, device=grades.device).expand_as(columns)
        positions.scatter_(1, columns.clamp_(max=n_positives), items)
        self.positions = positions[:, :n_positives]
        self._padding = self.positions == n_list
        self._inside = self.positions.clamp(max=n_list - 1)

    def take(
        self, values: Float[Tensor, "anchors list"], otherwise: float | None = None
    ) -> Float[Tensor, "anchors positives"]:
        """Return the values of the positives, and any values or `otherwise` in the padding."""
        taken = values.gather(1, self._inside)
        return taken if otherwise is None else taken.masked_fill_(self._padding, otherwise)

    def add_to(
        self, items: Float[Tensor, "anchors list"], values: Float[Tensor, "anchors positives"]
    ) -> Float[Tensor, "anchors list"]:
        """Add values of the positives, which are 0 in the padding, to those of all items."""
        return items.scatter_add_(1, self._inside, values)
