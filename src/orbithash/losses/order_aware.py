"""The order-aware triplet loss: every triplet of a batch, weighted by ΔAP.

Chen et al., "Improving Deep Binary Embedding Networks by Order-aware Reweighting of Triplets",
2018. For embeddings of 0 and 1, the squared Euclidean distance is the Hamming distance, so the
margin is in bits.
"""

from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int16
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from orbithash.errors import InputError
from orbithash.kernels.triplets import triplet_terms
from orbithash.losses.inputs import check_embeddings, check_labels, check_memory, check_triplets
from orbithash.losses.pairs import (
    grades_of_lists,
    hamming_distances,
    squared_distances,
    uses_kernels,
)
from orbithash.losses.triplet_tensors import AnchorSums, rank_items, sum_triplets, swap_weights

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
            `"none"`, all weights 1.
        ties: The order of equal Hamming distances: `"distance"`, by embedding distance and then by
            index; `"index"`; or `"random"`, drawn from torch's generator.
        reduction: The divisor of the sum: 1 (`"sum"`), the number of triplets (`"mean"`), the
            number of triplets within the margin (`"active"`), the sum of the weights (`"weight"`)
            or the number of anchors that have triplets (`"anchor"`).
    """

    margin_of_bits: ClassVar[float] = 1 / 8  # default margin, as a fraction of the bits

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
        labels: Tensor,
        indices_tuple: tuple[Tensor, ...] | None = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Float[Tensor, ""]:
        """Return the loss of a batch.

        Args:
            embeddings: (images, bits) in [0, 1].
            labels: Integers (images,), or a 0-1 table (images, classes).
            indices_tuple: Only these anchors, positives and negatives, as the miners of
                pytorch-metric-learning return them. With a memory, positives and negatives are
                rows of `ref_emb`, and rows that repeat the anchor are skipped. The weights still
                come from the full rank lists.
            ref_emb: A memory: embeddings of further positives and negatives for every anchor.
            ref_labels: The labels of the memory.
        """
        check_embeddings(embeddings)
        check_labels(labels, len(embeddings))
        labels = labels.to(embeddings.device)
        if ref_emb is not None or ref_labels is not None:
            ref_emb, ref_labels = check_memory(embeddings, labels, ref_emb, ref_labels)
        # Half precision has too many ties to rank well: compute in float32, autocast or not.
        dtype = torch.float64 if embeddings.dtype == torch.float64 else torch.float32
        with torch.autocast(embeddings.device.type, enabled=False):
            embeddings = embeddings.to(dtype)
            memory = None if ref_emb is None else ref_emb.to(dtype)
            items = embeddings if memory is None else torch.cat([embeddings, memory])
            margin = self.margin
            if margin is None:
                margin = self.margin_of_bits * embeddings.shape[1]

            # All of shape (anchors, items): one rank list per anchor, sorted by Hamming distance
            # and then by the tie keys.
            distances = squared_distances(embeddings, items)
            hamming = hamming_distances(embeddings.detach(), items.detach())
            grades = grades_of_lists(embeddings, labels, memory, ref_labels)
            lists = (distances, hamming, grades, self._tie_keys(distances.detach()))
            rule = (margin, self.gamma, self.weighting)
            if indices_tuple is None:
                sums = Sums(*_AllTriplets.apply(*lists, *rule))  # type: ignore[no-untyped-call]
            else:
                offset = 0 if memory is None else len(embeddings)
                triplets = check_triplets(indices_tuple, grades, offset, self.weighting)
                sums = _sum_given_triplets(triplets, *lists, *rule)

            self.last = Sums(*(number.detach() for number in sums))
            divisor = {
                "sum": torch.ones_like(sums.total),
                "mean": sums.triplets,
                "active": sums.active,
                "weight": sums.weights,
                "anchor": sums.anchors,
            }[self.reduction]
            # Without triplets the loss is 0, not 0/0.
            return sums.total / torch.where(divisor > 0, divisor, 1)

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
        margin = "bits/8" if self.margin is None else self.margin
        return (
            f"margin={margin}, gamma={self.gamma}, weighting={self.weighting!r}, "
            f"ties={self.ties!r}, reduction={self.reduction!r}"
        )


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
    ) -> tuple[Tensor, ...]:
        if uses_kernels(distances.device):
            arrays = triplet_terms(
                distances.detach().contiguous().numpy(),
                hamming.contiguous().numpy(),
                grades.contiguous().numpy(),
                margin=margin,
                gamma=gamma,
                weighting=weighting,
                tie_keys=None if tie_keys is None else tie_keys.contiguous().numpy(),
            )
            sums = AnchorSums(*(torch.from_numpy(array) for array in arrays))
        else:
            sums = sum_triplets(distances, hamming, grades, tie_keys, margin, gamma, weighting)
        ctx.save_for_backward(sums.gradients)
        per_anchor = (sums.losses, sums.weights, sums.triplets, sums.active, sums.triplets > 0)
        batch = Sums(*(values.sum().to(distances.dtype) for values in per_anchor))
        ctx.mark_non_differentiable(*batch[1:])
        return batch

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        (gradients,) = ctx.saved_tensors
        return (scale * gradients, None, None, None, None, None, None)


def _sum_given_triplets(
    triplets: tuple[Tensor, Tensor, Tensor],
    distances: Float[Tensor, "anchors list"],
    hamming: Int16[Tensor, "anchors list"],
    grades: Int16[Tensor, "anchors list"],
    tie_keys: Float[Tensor, "anchors list"] | None,
    margin: float,
    gamma: float,
    weighting: str,
) -> Sums:
    """Sum over explicit (anchors, positives, negatives), weighted by ranks in the full lists."""
    anchors, positives, negatives = triplets
    ranked = rank_items(hamming, grades, tie_keys, distances.dtype)
    weights = swap_weights(
        ranked.take(anchors, positives), ranked.take(anchors, negatives), weighting
    )
    hinge = (margin + distances[anchors, positives] - distances[anchors, negatives]).relu()
    return Sums(
        total=(weights * hinge**gamma).sum(),
        weights=weights.sum(),
        triplets=hinge.new_tensor(len(hinge)),
        active=(hinge > 0).sum().to(hinge.dtype),
        anchors=(anchors.bincount() > 0).sum().to(hinge.dtype),
    )


def _check_choice(name: str, got: str, choices: tuple[str, ...]) -> None:
    if got not in choices:
        raise InputError(f"{name} must be one of {', '.join(choices)}; got {got!r}")
