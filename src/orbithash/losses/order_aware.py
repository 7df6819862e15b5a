"""The order-aware triplet loss: every triplet of a batch, weighted by ΔAP.

Chen et al., "Improving Deep Binary Embedding Networks by Order-aware Reweighting of Triplets",
2018. For embeddings of 0 and 1, the squared Euclidean distance is the Hamming distance, so the
margin is in bits.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int16, Real
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from orbithash.errors import InputError
from orbithash.kernels.triplets.sums import triplet_terms
from orbithash.losses.batch.inputs import (
    ValueChecks,
    check_embeddings,
    check_grades,
    check_labels,
    check_memory,
    check_triplets,
)
from orbithash.losses.batch.pairs import (
    NOT_RANKED,
    copies_of_anchors,
    hamming_distances,
    labels_in_common,
    most_related,
    moved,
    squared_distances,
    uses_kernels,
    without_autocast,
)
from orbithash.losses.batch.triplet_tensors import BatchSums, rank_items, sum_triplets, swap_weights
from orbithash.losses.teacher import NEIGHBOUR_SHARES, most_graded, neighbour_grades

WEIGHTINGS = ("ap", "ndcg", "none")
TIES = ("distance", "index", "random")
REDUCTIONS = ("sum", "mean", "active", "weight", "anchor")


class Sums(NamedTuple):
    """Σ λ·hinge^γ over the triplets of a batch, and the possible divisors."""

    total: Float[Tensor, ""]
    weights: Float[Tensor, ""]  # Σ λ
    triplets: Float[Tensor, ""]  # number of triplets
    active: Float[Tensor, ""]  # number of triplets with hinge > 0
    anchors: Float[Tensor, ""]  # number of anchors with triplets

    def divisor(self, reduction: str) -> Float[Tensor, ""]:
        """Return the number that a reduction divides the total by."""
        number = {
            "sum": torch.ones_like(self.total),
            "mean": self.triplets,
            "active": self.active,
            "weight": self.weights,
            "anchor": self.anchors,
        }[reduction]
        return torch.where(number > 0, number, 1)  # without triplets the loss is 0, not 0/0


class BatchLists(NamedTuple):
    """The list of each anchor, every image of batch and memory, before it is graded."""

    distances: Float[Tensor, "anchors list"]
    hamming: Int16[Tensor, "anchors list"]  # the lists are sorted by these
    skipped: Bool[Tensor, "anchors list"]  # the anchor itself, and copies of it in the memory
    n_bits: int
    has_memory: bool
    checks: ValueChecks  # of batch and memory


class OrderAwareTripletLoss(nn.Module):
    """Squared triplet hinge, each triplet weighted by the |ΔAP| of swapping its two images.

    A triplet's weight is the change of the anchor's average precision if the positive and the
    negative swapped ranks in the batch, sorted by Hamming distance. Weights are constants: no
    gradient flows through the ranking. All triplets of the batch are used, without sampling.

    Chen et al., "Improving Deep Binary Embedding Networks by Order-aware Reweighting of
    Triplets", 2018.

    Args:
        margin: Number of bits by which negatives should be farther than positives; default: an
            eighth of the bits.
        gamma: The power of the hinge, at least 1.
        weighting: The score whose change weights a triplet: `"ap"`; `"ndcg"`, with the number of
            labels in common as grades and with triplets (anchor, more related, less related); or
            `"none"`, all weights 1. Given grades, or a teacher's, are weighted by NDCG in place of
            AP, which knows no grades.
        ties: The order of equal Hamming distances: `"distance"`, by embedding distance and then by
            index; `"index"`; or `"random"`, drawn from torch's generator.
        reduction: The divisor of the sum: 1 (`"sum"`), the number of triplets (`"mean"`), the
            number of triplets within the margin (`"active"`), the sum of the weights (`"weight"`)
            or the number of anchors that have triplets (`"anchor"`).
    """

    margin_of_bits: float = 1 / 8  # default margin, as a fraction of the bits

    def __init__(
        self,
        *,
        margin: float | None = None,
        gamma: float = 2.0,
        weighting: str = "ap",
        ties: str = "distance",
        reduction: str = "active",
    ) -> None:
        super().__init__()
        _check_choice("weighting", weighting, WEIGHTINGS)
        _check_choice("ties", ties, TIES)
        _check_choice("reduction", reduction, REDUCTIONS)
        if not 1 <= gamma < float("inf"):
            raise InputError(f"gamma must be finite and at least 1; got {gamma}; the paper uses 2")
        if margin is not None and not 0 <= margin < float("inf"):
            raise InputError(
                f"margin must be a number of bits, at least 0; got {margin}; "
                "leave it out for an eighth of the bits"
            )
        self.margin, self.gamma = margin, gamma
        self.last: Sums | None = None  # sums of the last batch, for logging
        self.weighting, self.ties, self.reduction = weighting, ties, reduction

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor | None = None,
        indices_tuple: tuple[Tensor, ...] | None = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
        grades: Tensor | None = None,
        teacher: Tensor | None = None,
        ref_teacher: Tensor | None = None,
        lists: BatchLists | None = None,
        max_positives: int | None = None,
    ) -> Float[Tensor, ""]:
        """Return the loss of a batch.

        On a device other than the CPU, the host waits for one number, the most positives of a list.
        It does not where the number is known: from `max_positives`, a teacher, or labels on the
        CPU. Invalid values there, such as embeddings beyond 1, give NaN instead of an error.

        With `grades` or `teacher`, triplets are (anchor, higher grade, lower grade). Labels, if
        there are any, then only tell copies in the memory from other images.

        Args:
            embeddings: (images, bits) in [0, 1].
            labels: Integers (images,), or a 0-1 table (images, classes).
            indices_tuple: Only these anchors, positives and negatives, as the miners of
                pytorch-metric-learning return them. With a memory, positives and negatives are
                rows of `ref_emb`, and rows that repeat the anchor are skipped. The weights still
                come from the full rank lists.
            ref_emb: A memory: embeddings of further positives and negatives for every anchor.
            ref_labels: The labels of the memory.
            grades: The relevance of each image to each anchor, (images, images and memory), from 0
                on. The grade of an anchor for itself is not used.
            teacher: Vectors (images, d) whose nearest neighbours give the grades: see
                `orbithash.losses.teacher.neighbour_grades`.
            ref_teacher: The teacher's vectors of the memory.
            lists: What `batch_lists` returned for this batch, if another loss needed it, too.
            max_positives: At least the number of images above grade 0 in any list.
        """
        if lists is None:
            lists = batch_lists(embeddings, labels, ref_emb, ref_labels)
        graded = grades is not None or teacher is not None or self.weighting == "ndcg"
        weighting = "ndcg" if graded and self.weighting == "ap" else self.weighting
        if teacher is not None and grades is None:
            grades = neighbour_grades(
                teacher, ref_teacher, skipped=lists.skipped, checks=lists.checks
            )
            max_positives = most_graded(NEIGHBOUR_SHARES, grades.shape[1])
        elif teacher is not None or ref_teacher is not None:
            raise InputError(
                "a teacher gives the grades, and ref_teacher belongs to teacher; pass grades, or "
                "teacher and, for a memory, ref_teacher"
            )
        elif grades is not None:
            grades = check_grades(grades, lists.skipped, lists.checks)
        elif labels is not None:
            if max_positives is None and not uses_kernels(lists.distances.device):
                max_positives = most_related(labels, ref_labels)
            grades = label_grades(labels, ref_labels, lists.distances.device)
        else:
            raise InputError("got no labels; pass labels, grades or teacher")
        distances = lists.distances
        if grades.dtype != torch.int16:
            grades = grades.to(distances.dtype)
        grades = grades.to(distances.device).masked_fill(lists.skipped, NOT_RANKED)
        if max_positives is not None and not uses_kernels(distances.device):
            most = int(max_positives)
            lists.checks.require(
                ((grades > 0).sum(dim=1) <= most).all(),
                lambda: InputError(f"max_positives is {most}, but a list has more positives"),
            )
        margin = self.margin_of_bits * lists.n_bits if self.margin is None else self.margin
        with without_autocast(distances.device):
            ranked = (distances, lists.hamming, grades, self._tie_keys(distances.detach()))
            rule = (margin, self.gamma, weighting)
            if indices_tuple is None:
                sums = Sums(*_AllTriplets.apply(*ranked, *rule, graded, max_positives))  # type: ignore[no-untyped-call]
            else:
                offset = len(distances) if lists.has_memory else 0
                triplets = check_triplets(indices_tuple, grades, offset, graded, lists.checks)
                sums = _sum_given_triplets(triplets, *ranked, *rule)
            self.last = Sums(*(number.detach() for number in sums))
            return lists.checks.nan_if_failed(sums.total / sums.divisor(self.reduction))

    @property
    def weight_scale(self) -> Tensor | None:
        """Σ λ over the divisor, for the last batch.

        The loss is this number times the weighted mean of the hinges. By default it is Σ λ over the
        number of triplets within the margin.
        """
        return None if self.last is None else self.last.weights / self.last.divisor(self.reduction)

    @property
    def active_share(self) -> float:
        """The share of the last batch's triplets that were within the margin."""
        return 0.0 if self.last is None else float(self.last.active / self.last.triplets.clamp(1))

    @property
    def n_triplets(self) -> int:
        """The number of triplets in the last batch."""
        return 0 if self.last is None else int(self.last.triplets)

    def _tie_keys(self, distances: Float[Tensor, "n list"]) -> Float[Tensor, "n list"] | None:
        if self.ties == "distance":
            return distances
        return torch.rand_like(distances) if self.ties == "random" else None

    def extra_repr(self) -> str:
        margin = f"bits/{1 / self.margin_of_bits:g}" if self.margin is None else self.margin
        return (
            f"margin={margin}, gamma={self.gamma}, weighting={self.weighting!r}, "
            f"ties={self.ties!r}, reduction={self.reduction!r}"
        )


def batch_lists(
    embeddings: Tensor,
    labels: Tensor | None,
    ref_emb: Tensor | None = None,
    ref_labels: Tensor | None = None,
) -> BatchLists:
    """Check a batch and its memory, and compute the distances of all pairs."""
    checks = ValueChecks()
    check_embeddings(embeddings, checks=checks)
    if labels is not None:
        check_labels(labels, len(embeddings), checks=checks)
        labels = moved(labels, embeddings.device)
    if ref_emb is not None or ref_labels is not None:
        ref_emb, ref_labels = check_memory(embeddings, labels, ref_emb, ref_labels, checks)
    # Half precision has too many ties to rank well: compute in float32, autocast or not.
    dtype = torch.float64 if embeddings.dtype == torch.float64 else torch.float32
    with without_autocast(embeddings.device):
        embeddings = embeddings.to(dtype)
        memory = None if ref_emb is None else ref_emb.to(dtype)
        items = embeddings if memory is None else torch.cat([embeddings, memory])
        return BatchLists(
            distances=squared_distances(embeddings, items),
            hamming=hamming_distances(embeddings.detach(), items.detach()),
            skipped=copies_of_anchors(embeddings, labels, memory, ref_labels),
            n_bits=embeddings.shape[1],
            has_memory=memory is not None,
            checks=checks,
        )


def label_grades(
    labels: Tensor, ref_labels: Tensor | None, device: torch.device
) -> Int16[Tensor, "anchors list"]:
    """Count the labels that the images of batch and memory share with each image of the batch."""
    labels = moved(labels, device)
    others = labels if ref_labels is None else torch.cat([labels, moved(ref_labels, device)])
    return labels_in_common(labels, others)


class _AllTriplets(torch.autograd.Function):
    """Sums over all triplets: compiled on the CPU, in tensor operations on other devices.

    `forward` also computes the gradient with respect to all distances; `backward` only scales it.
    """

    @staticmethod
    def forward(
        ctx: Any,
        distances: Tensor,
        hamming: Tensor,
        grades: Tensor,
        tie_keys: Tensor | None,
        margin: float,
        gamma: float,
        weighting: str,
        graded: bool,
        max_positives: int | None,
    ) -> tuple[Tensor, ...]:
        if uses_kernels(distances.device):
            arrays = triplet_terms(
                distances.detach().contiguous().numpy(),
                hamming.contiguous().numpy(),
                grades.contiguous().numpy(),
                margin=margin,
                gamma=gamma,
                weighting=weighting,
                graded=graded,
                tie_keys=None if tie_keys is None else tie_keys.contiguous().numpy(),
            )
            losses, weights, triplets, active, gradients = map(torch.from_numpy, arrays)
            anchors = (triplets > 0).sum()
            sums = BatchSums(
                losses.sum(), weights.sum(), triplets.sum(), active.sum(), anchors, gradients
            )
        else:
            sums = sum_triplets(
                distances,
                hamming,
                grades,
                tie_keys,
                margin,
                gamma,
                weighting,
                graded,
                max_positives,
            )
        ctx.save_for_backward(sums.gradients)
        batch = Sums(*(value.to(distances.dtype) for value in sums[:5]))
        ctx.mark_non_differentiable(*batch[1:])
        return batch

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        (gradients,) = ctx.saved_tensors
        return (scale * gradients, *[None] * 8)


def _sum_given_triplets(
    triplets: tuple[Tensor, Tensor, Tensor, Bool[Tensor, " triplets"]],
    distances: Float[Tensor, "anchors list"],
    hamming: Int16[Tensor, "anchors list"],
    grades: Real[Tensor, "anchors list"],
    tie_keys: Float[Tensor, "anchors list"] | None,
    margin: float,
    gamma: float,
    weighting: str,
) -> Sums:
    """Sum over explicit (anchors, positives, negatives), weighted by ranks in the full lists.

    The last of `triplets` is a mask of those that count.
    """
    anchors, positives, negatives, counted = triplets
    ranked = rank_items(hamming, grades, tie_keys, distances.dtype)
    weights = swap_weights(
        ranked.take(anchors, positives), ranked.take(anchors, negatives), weighting
    )
    weights = weights * counted
    hinge = (margin + distances[anchors, positives] - distances[anchors, negatives]).relu()
    per_anchor = torch.zeros(len(distances), dtype=torch.int64, device=distances.device)
    per_anchor.index_add_(0, anchors, counted.long())
    return Sums(
        total=(weights * hinge**gamma).sum(),
        weights=weights.sum(),
        triplets=counted.sum().to(hinge.dtype),
        active=(counted & (hinge > 0)).sum().to(hinge.dtype),
        anchors=(per_anchor > 0).sum().to(hinge.dtype),
    )


def _check_choice(name: str, got: str, choices: tuple[str, ...]) -> None:
    if got not in choices:
        raise InputError(f"{name} must be one of {', '.join(choices)}; got {got!r}")
