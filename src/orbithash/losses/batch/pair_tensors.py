"""The passes over (anchor, positive, item) tensors: tensor operations' counterpart of the kernels.

One entry stands for a positive of an anchor's list and one of all items of the list. Memory traffic
is what counts, so every pass works in place on two buffers, which all chunks share. Masks are
floats (0 or 1): on the CPU, passes over booleans take several times as long.

What forms no triplet adds 0 without a mask: an item that is no negative is FAR away, and so is a
place of the padded list of positives on the other side, so the hinge is 0.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

FAR = 1e30  # a distance beyond all others, which float32 can hold


class Binary(NamedTuple):
    """What ΔAP needs of positives (anchors, positives, 1) or of items (anchors, 1, list).

    R·λ = q of the positive − q of the negative, plus u of the negative − u of the positive if the
    negative has the lower rank.
    """

    distance: Float[Tensor, "..."]  # of positives, the threshold: distance plus margin
    rank: Float[Tensor, "..."]
    q: Float[Tensor, "..."]
    u: Float[Tensor, "..."]


class Graded(NamedTuple):
    """What ΔNDCG needs of positives or of items, as `Binary`."""

    distance: Float[Tensor, "..."]
    grade: Float[Tensor, "..."]
    gain: Float[Tensor, "..."]
    discount: Float[Tensor, "..."]


class PairSums(NamedTuple):
    """Sums over the triplets of a chunk."""

    losses: Float[Tensor, ""]
    weights: Tensor  # Σ λ; 0 for `Binary`, which has a quicker way
    triplets: Tensor  # as `weights`
    active: Tensor
    by_positive: Float[Tensor, "anchors positives"]  # Σ λ·hinge^(γ−1) over the items
    by_item: Float[Tensor, "anchors list"]  # and over the positives


def sum_chunks(
    positives: Binary | Graded,
    items: Binary | Graded,
    gamma: float,
    weighted: bool,
    buffers: Float[Tensor, "2 entries"],
) -> PairSums:
    """Sum over all triplets of a block of anchors, in chunks that fit the buffers.

    The fields are (anchors, positives) and (anchors, list), which fit the buffers for one positive.
    """
    (n_anchors, n_positives), n_list = positives.distance.shape, items.distance.shape[1]
    capacity = buffers.shape[1]
    row_step = max(1, capacity // (n_positives * n_list))
    column_step = min(n_positives, capacity // n_list)
    by_positive, by_item = torch.empty_like(positives.distance), torch.zeros_like(items.distance)
    chunks: list[PairSums] = []
    for row_start in range(0, n_anchors, row_step):
        for column_start in range(0, n_positives, column_step):
            rows = slice(row_start, row_start + row_step)
            columns = slice(column_start, column_start + column_step)
            some = [field[rows, columns, None] for field in positives]
            others = [field[rows, None] for field in items]
            shape = (*some[0].shape[:2], n_list)
            slopes, hinges = (part[: math.prod(shape)].view(shape) for part in buffers)
            rule = (gamma, weighted, slopes, hinges)
            if isinstance(positives, Binary):
                sums = sum_binary(Binary(*some), Binary(*others), *rule)
            else:
                sums = sum_graded(Graded(*some), Graded(*others), *rule)
            if sums.by_positive.shape == by_positive.shape:  # the only chunk
                return sums
            by_positive[rows, columns] = sums.by_positive
            by_item[rows] += sums.by_item
            chunks.append(sums)
    losses, weights, triplets, active = (
        torch.stack(parts).sum() for parts in zip(*(chunk[:4] for chunk in chunks), strict=True)
    )
    return PairSums(losses, weights, triplets, active, by_positive, by_item)


def sum_binary(
    positives: Binary,
    items: Binary,
    gamma: float,
    weighted: bool,
    slopes: Float[Tensor, "anchors positives list"],
    hinges: Float[Tensor, "anchors positives list"],
) -> PairSums:
    """Sum over triplets of a positive and a negative, weighted by ΔAP or by 1.

    `slopes` and `hinges` are the buffers.
    """
    if weighted:
        before = torch.lt(items.rank, positives.rank, out=hinges)
        torch.sub(items.u, positives.u, out=slopes).mul_(before)
        slopes.sub_(items.q).add_(positives.q)
    else:
        slopes.fill_(1)
    losses = _times_powers(slopes, hinges, positives.distance, items.distance, gamma)
    by_positive, by_item = slopes.sum(dim=2), slopes.sum(dim=1)
    active = _count(hinges.gt_(0))
    none = torch.zeros_like(active)
    return PairSums(losses, none, none, active, by_positive, by_item)


def sum_graded(
    positives: Graded,
    items: Graded,
    gamma: float,
    weighted: bool,
    slopes: Float[Tensor, "anchors positives list"],
    hinges: Float[Tensor, "anchors positives list"],
) -> PairSums:
    """Sum over triplets of a higher and a lower grade, weighted by ΔNDCG or by 1."""
    if weighted:
        torch.sub(positives.discount, items.discount, out=hinges).abs_()
        # Gains ascend with the grades, so items of other than lower grades have weight 0.
        torch.sub(positives.gain, items.gain, out=slopes).clamp_min_(0).mul_(hinges)
    else:
        torch.lt(items.grade, positives.grade, out=slopes)
    weights = slopes.sum(dim=2).sum()
    losses = _times_powers(slopes, hinges, positives.distance, items.distance, gamma)
    by_positive, by_item = slopes.sum(dim=2), slopes.sum(dim=1)
    lower = torch.lt(items.grade, positives.grade, out=slopes)
    triplets = _count(lower)
    return PairSums(
        losses, weights, triplets, _count(lower.mul_(hinges.gt_(0))), by_positive, by_item
    )


def _times_powers(
    slopes: Float[Tensor, "anchors positives list"],
    hinges: Float[Tensor, "anchors positives list"],
    thresholds: Float[Tensor, "anchors positives 1"],
    distances: Float[Tensor, "anchors 1 list"],
    gamma: float,
) -> Float[Tensor, ""]:
    """Write hinges; multiply λ in `slopes` by hinge^(γ−1); return Σ λ·hinge^γ.

    A slope times ±γ is the derivative of a triplet's loss by its distances.
    """
    torch.sub(thresholds, distances, out=hinges).clamp_min_(0)
    if gamma == 2:
        slopes.mul_(hinges)
    elif gamma == 1:
        slopes.mul_(hinges.sign())
    else:
        slopes.mul_(hinges.pow(gamma - 1))
    return torch.dot(slopes.flatten(), hinges.flatten())


def _count(ones: Float[Tensor, "anchors positives list"]) -> Tensor:
    # In two steps: float32 counts the items of one list exactly, but not those of all.
    return ones.sum(dim=2).sum(dtype=torch.int64)
