"""Plain triplet hinges over chosen negatives: the hard ones, or the semi-hard ones.

Both choose by rank among an anchor's negatives, so neither needs the triplets laid out: the nearest
negatives are the same for all of an anchor's positives, and those between two distances are one
stretch of the sorted list.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from orbithash.errors import InputError
from orbithash.losses.distances import squared_distances
from orbithash.losses.inputs import check_embeddings, check_labels
from orbithash.losses.relations import grades_of_lists

REDUCTIONS = ("sum", "mean", "active", "anchor")


class Mined(NamedTuple):
    """What the chosen triplets add up to."""

    total: Float[Tensor, ""]
    triplets: Float[Tensor, ""]  # how many were chosen
    active: Float[Tensor, ""]  # how many of them are within the margin
    anchors: Float[Tensor, ""]  # how many anchors they have


class MinedTripletLoss(nn.Module, ABC):
    """Triplet hinge over the triplets that a subclass chooses.

    Args:
        margin: By how many bits a negative should be farther than a positive; an eighth of the
            bits if not given.
        reduction: What the sum is divided by: nothing (`sum`), the number of chosen triplets
            (`mean`), of those within the margin (`active`), or of the anchors (`anchor`).
    """

    margin_of_bits: ClassVar[float] = 1 / 8  # unless a margin is given

    def __init__(self, *, margin: float | None = None, reduction: str = "active") -> None:
        super().__init__()
        if reduction not in REDUCTIONS:
            raise InputError(f"reduction must be one of {', '.join(REDUCTIONS)}; got {reduction!r}")
        if margin is not None and not 0 <= margin < float("inf"):
            raise InputError(f"margin must be a number of bits, at least 0; got {margin}")
        self.margin, self.reduction = margin, reduction
        self.last: Mined | None = None

    def forward(self, embeddings: Float[Tensor, "n bits"], labels: Tensor) -> Float[Tensor, ""]:
        check_embeddings(embeddings)
        check_labels(labels, len(embeddings))
        grades = grades_of_lists(embeddings, labels.to(embeddings.device))
        margin = self.margin_of_bits * embeddings.shape[1] if self.margin is None else self.margin
        distances = squared_distances(embeddings, embeddings)
        mined = self.mine(distances, grades > 0, grades == 0, margin)
        self.last = Mined(*(number.detach() for number in mined))
        divisor = {
            "sum": torch.ones_like(mined.total),
            "mean": mined.triplets,
            "active": mined.active,
            "anchor": mined.anchors,
        }[self.reduction]
        return mined.total / divisor.clamp(1)  # no triplet, no loss: 0/0 must not become NaN

    @abstractmethod
    def mine(
        self,
        distances: Float[Tensor, "n n"],
        positive: Bool[Tensor, "n n"],
        negative: Bool[Tensor, "n n"],
        margin: float,
    ) -> Mined:
        """What the triplets of this choice add up to."""

    @property
    def active_share(self) -> float:
        """The share of the last batch's chosen triplets that were within the margin."""
        return 0.0 if self.last is None else float(self.last.active / self.last.triplets.clamp(1))

    @property
    def n_triplets(self) -> int:
        """How many triplets of the last batch were chosen."""
        return 0 if self.last is None else int(self.last.triplets)


class HardNegativeTripletLoss(MinedTripletLoss):
    """Triplet hinge over the negatives of highest loss, four for each anchor-positive pair.

    A baseline of Chen et al., 2018: they train with all triplets first and then go on with these,
    as `--init` does. From a random start the hardest negatives mislead.
    """

    def __init__(
        self, *, margin: float | None = None, reduction: str = "active", negatives: int = 4
    ) -> None:
        super().__init__(margin=margin, reduction=reduction)
        if negatives < 1:
            raise InputError(f"negatives={negatives}; take at least one of each pair")
        self.negatives = negatives

    def mine(
        self,
        distances: Float[Tensor, "n n"],
        positive: Bool[Tensor, "n n"],
        negative: Bool[Tensor, "n n"],
        margin: float,
    ) -> Mined:
        # The nearest negative has the highest loss, whichever the positive.
        far = distances.masked_fill(~negative, float("inf"))
        nearest = far.topk(min(self.negatives, len(far)), dim=1, largest=False).values
        chosen = positive[:, :, None] & nearest.isfinite()[:, None, :]
        hinge = (margin + distances[:, :, None] - nearest[:, None, :]).relu()
        hinge = hinge.where(chosen, 0)
        return Mined(
            total=hinge.sum(),
            triplets=chosen.sum().to(hinge.dtype),
            active=(hinge > 0).sum().to(hinge.dtype),
            anchors=chosen.flatten(1).any(dim=1).sum().to(hinge.dtype),
        )


class SemiHardTripletLoss(MinedTripletLoss):
    """Triplet hinge over negatives that are farther than the positive, by embedding distance.

    Schroff, Kalenichenko and Philbin, "FaceNet: A Unified Embedding for Face Recognition and
    Clustering", CVPR 2015, with all such negatives of all anchor-positive pairs, as in the
    comparison of Chen et al., 2018.
    """

    def mine(
        self,
        distances: Float[Tensor, "n n"],
        positive: Bool[Tensor, "n n"],
        negative: Bool[Tensor, "n n"],
        margin: float,
    ) -> Mined:
        ordered, order = distances.masked_fill(~negative, float("inf")).sort(dim=1)
        # Sums over the first so many negatives, in double precision: a difference of two is taken.
        values = distances.gather(1, order).where(ordered.isfinite(), 0).double()
        sums = nn.functional.pad(values.cumsum(dim=1), (1, 0))

        # Only for pairs: few images are related to an anchor, where classes are many.
        anchors, positives = positive.nonzero(as_tuple=True)
        limits = distances[anchors, positives]
        farther, within = first_beyond(ordered.detach(), anchors, limits.detach(), margin)
        n_active = within - farther
        n_chosen = negative.sum(dim=1)[anchors] - farther
        hinges = n_active * (margin + limits) - (sums[anchors, within] - sums[anchors, farther])
        per_anchor = torch.zeros(len(order), dtype=torch.int64, device=order.device)
        per_anchor = per_anchor.index_add(0, anchors, n_chosen)
        return Mined(
            total=hinges.sum().to(distances.dtype),
            triplets=n_chosen.sum().to(distances.dtype),
            active=n_active.sum().to(distances.dtype),
            anchors=(per_anchor > 0).sum().to(distances.dtype),
        )


def first_beyond(
    ordered: Float[Tensor, "n n"],
    anchors: Int64[Tensor, " pairs"],
    limits: Float[Tensor, " pairs"],
    margin: float,
) -> tuple[Int64[Tensor, " pairs"], Int64[Tensor, " pairs"]]:
    """Where in its anchor's ordered list the first item is that lies beyond each limit, and the
    first that lies beyond it by the margin.

    All lists are searched as one: each is moved beyond the end of the list before.
    """
    n, dtype = len(ordered), torch.float64
    end = (limits.max() if len(limits) else limits.sum()).to(dtype) + margin + 1
    moved = (
        ordered.to(dtype).clamp_max(end) + (end + 1) * torch.arange(n, device=end.device)[:, None]
    )
    sought = limits.to(dtype) + (end + 1) * anchors
    farther = torch.searchsorted(moved.flatten(), sought, right=True)
    within = torch.searchsorted(moved.flatten(), sought + margin)
    return farther - n * anchors, torch.maximum(within, farther) - n * anchors
