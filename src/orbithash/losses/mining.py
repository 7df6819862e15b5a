"""Triplet hinge over mined negatives: hard ones, or semi-hard ones.

Both select by rank among an anchor's negatives, so neither needs an (anchor, positive, negative)
tensor: the nearest negatives are the same for all positives of an anchor, and the negatives between
two distances are a slice of the sorted list.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from orbithash.errors import InputError
from orbithash.losses.batch.inputs import check_embeddings, check_labels
from orbithash.losses.batch.pairs import grades_of_lists, squared_distances

REDUCTIONS = ("sum", "mean", "active", "anchor")


class MinedSums(NamedTuple):
    """Sums over the mined triplets."""

    total: Float[Tensor, ""]  # Σ hinge
    triplets: Float[Tensor, ""]  # number of mined triplets
    active: Float[Tensor, ""]  # number of mined triplets within the margin
    anchors: Float[Tensor, ""]  # number of anchors with mined triplets


class MinedTripletLoss(nn.Module, ABC):
    """Triplet hinge over the triplets that a subclass mines.

    Args:
        margin: Number of bits by which negatives should be farther than positives; default: an
            eighth of the bits.
        reduction: The divisor of the sum: 1 (`"sum"`), the number of mined triplets (`"mean"`),
            the number of mined triplets within the margin (`"active"`) or the number of anchors
            that have any (`"anchor"`).
    """

    margin_of_bits: ClassVar[float] = 1 / 8  # default margin, as a fraction of the bits

    def __init__(self, *, margin: float | None = None, reduction: str = "active") -> None:
        super().__init__()
        if reduction not in REDUCTIONS:
            raise InputError(f"reduction must be one of {', '.join(REDUCTIONS)}; got {reduction!r}")
        if margin is not None and not 0 <= margin < float("inf"):
            raise InputError(f"margin must be a number of bits, at least 0; got {margin}")
        self.margin, self.reduction = margin, reduction
        self.last: MinedSums | None = None

    def forward(self, embeddings: Float[Tensor, "n bits"], labels: Tensor) -> Float[Tensor, ""]:
        check_embeddings(embeddings)
        check_labels(labels, len(embeddings))
        grades = grades_of_lists(embeddings, labels.to(embeddings.device))
        margin = self.margin_of_bits * embeddings.shape[1] if self.margin is None else self.margin
        distances = squared_distances(embeddings, embeddings)
        mined = self.mine(distances, grades > 0, grades == 0, margin)
        self.last = MinedSums(*(number.detach() for number in mined))
        divisor = {
            "sum": torch.ones_like(mined.total),
            "mean": mined.triplets,
            "active": mined.active,
            "anchor": mined.anchors,
        }[self.reduction]
        return mined.total / divisor.clamp(1)  # without triplets the loss is 0, not 0/0

    @abstractmethod
    def mine(
        self,
        distances: Float[Tensor, "n n"],
        positive: Bool[Tensor, "n n"],
        negative: Bool[Tensor, "n n"],
        margin: float,
    ) -> MinedSums:
        """Return the sums over the triplets that this loss selects."""

    @property
    def active_share(self) -> float:
        """The share of the last batch's mined triplets that were within the margin."""
        return 0.0 if self.last is None else float(self.last.active / self.last.triplets.clamp(1))

    @property
    def n_triplets(self) -> int:
        """The number of triplets mined in the last batch."""
        return 0 if self.last is None else int(self.last.triplets)


class HardNegativeTripletLoss(MinedTripletLoss):
    """Triplet hinge over the hardest negatives, four for each anchor-positive pair.

    A baseline of Chen et al., 2018, who train with all triplets first and then continue with these
    (as does training with `--init`). From random weights, the hardest negatives mislead training.
    """

    def __init__(
        self, *, margin: float | None = None, reduction: str = "active", negatives: int = 4
    ) -> None:
        super().__init__(margin=margin, reduction=reduction)
        if negatives < 1:
            raise InputError(f"negatives={negatives}; it must be at least 1")
        self.negatives = negatives

    def mine(
        self,
        distances: Float[Tensor, "n n"],
        positive: Bool[Tensor, "n n"],
        negative: Bool[Tensor, "n n"],
        margin: float,
    ) -> MinedSums:
        # The nearest negative has the highest loss for every positive.
        negative_distances = distances.masked_fill(~negative, float("inf"))
        k = min(self.negatives, len(distances))
        nearest = negative_distances.topk(k, dim=1, largest=False).values
        mined = positive[:, :, None] & nearest.isfinite()[:, None, :]
        hinge = (margin + distances[:, :, None] - nearest[:, None, :]).relu()
        hinge = hinge.where(mined, 0)
        return MinedSums(
            total=hinge.sum(),
            triplets=mined.sum().to(hinge.dtype),
            active=(hinge > 0).sum().to(hinge.dtype),
            anchors=mined.flatten(1).any(dim=1).sum().to(hinge.dtype),
        )


class SemiHardTripletLoss(MinedTripletLoss):
    """Triplet hinge over negatives that are farther than the positive, by embedding distance.

    Schroff, Kalenichenko and Philbin, "FaceNet: A Unified Embedding for Face Recognition and
    Clustering", CVPR 2015, over all such negatives of all anchor-positive pairs, as Chen et al.,
    2018, do in their comparison.
    """

    def mine(
        self,
        distances: Float[Tensor, "n n"],
        positive: Bool[Tensor, "n n"],
        negative: Bool[Tensor, "n n"],
        margin: float,
    ) -> MinedSums:
        ordered, order = distances.masked_fill(~negative, float("inf")).sort(dim=1)
        # Prefix sums over the sorted negatives, in double precision because they are subtracted.
        values = distances.gather(1, order).where(ordered.isfinite(), 0).double()
        prefix_sums = nn.functional.pad(values.cumsum(dim=1), (1, 0))

        # One entry per related pair: with many classes, few images are related to an anchor.
        anchors, positives = positive.nonzero(as_tuple=True)
        limits = distances[anchors, positives]
        start, stop = semi_hard_ranges(ordered.detach(), anchors, limits.detach(), margin)
        n_active = stop - start
        n_mined = negative.sum(dim=1)[anchors] - start
        hinges = n_active * (margin + limits) - (
            prefix_sums[anchors, stop] - prefix_sums[anchors, start]
        )
        per_anchor = torch.zeros(len(order), dtype=torch.int64, device=order.device)
        per_anchor = per_anchor.index_add(0, anchors, n_mined)
        return MinedSums(
            total=hinges.sum().to(distances.dtype),
            triplets=n_mined.sum().to(distances.dtype),
            active=n_active.sum().to(distances.dtype),
            anchors=(per_anchor > 0).sum().to(distances.dtype),
        )


def semi_hard_ranges(
    ordered: Float[Tensor, "n n"],
    anchors: Int64[Tensor, " pairs"],
    limits: Float[Tensor, " pairs"],
    margin: float,
) -> tuple[Int64[Tensor, " pairs"], Int64[Tensor, " pairs"]]:
    """Return, for each pair, the slice of active semi-hard negatives in the anchor's sorted list.

    Slice [start, stop) has limit < distance < limit + margin, where the limit is the distance of
    the positive. All lists are searched as one sorted array: each is shifted beyond the end of the
    previous one.
    """
    n, dtype = len(ordered), torch.float64
    end = (limits.max() if len(limits) else limits.sum()).to(dtype) + margin + 1
    shifts = (end + 1) * torch.arange(n, device=end.device)
    shifted = (ordered.to(dtype).clamp_max(end) + shifts[:, None]).flatten()
    shifted_limits = limits.to(dtype) + (end + 1) * anchors
    start = torch.searchsorted(shifted, shifted_limits, right=True)
    stop = torch.searchsorted(shifted, shifted_limits + margin)
    return start - n * anchors, torch.maximum(stop, start) - n * anchors
