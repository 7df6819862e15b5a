"""The paper's loss ★: triplets weighted by what their order costs the ranking."""

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbithash.errors import InputError
from orbithash.losses.distances import hamming_distances, squared_distances
from orbithash.losses.inputs import check_embeddings, check_labels, check_memory
from orbithash.losses.relations import grades_of_lists
from orbithash.losses.triplet_sums import Sums, check_triplets, sum_all, sum_chosen

WEIGHTINGS = ("ap", "ndcg", "none")
TIES = ("distance", "index", "random")
REDUCTIONS = ("sum", "mean", "active", "weight", "anchor")


class OrderAwareTripletLoss(nn.Module):
    """Squared triplet hinge, each triplet weighted by what it costs the ranking.

    A triplet's weight is how much the anchor's average precision would change if the positive and
    the negative swapped places in the batch, ranked by Hamming distance. Weights are constants: no
    gradient flows through the ranking. All triplets of the batch count, none is sampled.

    Chen et al., "Improving Deep Binary Embedding Networks by Order-aware Reweighting of
    Triplets", 2018.

    Args:
        margin: By how many bits a negative should be farther than a positive; an eighth of the
            bits if not given.
        gamma: The power of the hinge, at least 1.
        weighting: What a swap is measured by: average precision, NDCG (with labels in common as
            grades, and triplets of more and less related images), or nothing (all weights 1).
        ties: The order of equal Hamming distances: by embedding distance and then by index, by
            index, or at random (drawn from torch's generator).
        reduction: What the sum is divided by: nothing (`sum`), the number of triplets (`mean`), of
            those within the margin (`active`), the sum of the weights (`weight`), or the number of
            anchors that have triplets (`anchor`).
    """

    margin_of_bits: ClassVar[float] = 1 / 8  # unless a margin is given

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
            raise InputError(f"gamma must be a number from 1 on; got {gamma}; the paper's is 2")
        if margin is not None and not 0 <= margin < float("inf"):
            raise InputError(
                f"margin must be a number of bits, at least 0; got {margin}; "
                "leave it out for an eighth of the bits"
            )
        self.margin, self.gamma = margin, gamma
        self.last: Sums | None = None  # what the last batch added up to
        self.weighting, self.ties, self.reduction = weighting, ties, reduction

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: tuple[Tensor, ...] | None = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Float[Tensor, ""]:
        """The loss of a batch.

        Args:
            embeddings: (images, bits) in [0, 1].
            labels: Integers (images,), or a 0-1 table (images, classes).
            indices_tuple: Only these anchors, positives and negatives, as the miners of
                pytorch-metric-learning return them: with a memory, the last two are rows of the
                memory (and those that repeat the anchor are left out). The weights still come from
                the full lists.
            ref_emb: A memory whose images are further positives and negatives in every list.
            ref_labels: The labels of the memory.
        """
        check_embeddings(embeddings)
        check_labels(labels, len(embeddings))
        labels = labels.to(embeddings.device)
        if ref_emb is not None or ref_labels is not None:
            ref_emb, ref_labels = check_memory(embeddings, labels, ref_emb, ref_labels)
        # Half precision ranks badly, so what comes in it goes on in float32, autocast or not.
        dtype = torch.float64 if embeddings.dtype == torch.float64 else torch.float32
        with torch.autocast(embeddings.device.type, enabled=False):
            return self._loss(
                embeddings.to(dtype),
                labels,
                indices_tuple,
                None if ref_emb is None else ref_emb.to(dtype),
                ref_labels,
            )

    def _loss(
        self,
        embeddings: Float[Tensor, "n bits"],
        labels: Tensor,
        indices_tuple: tuple[Tensor, ...] | None,
        memory: Float[Tensor, "m bits"] | None,
        memory_labels: Tensor | None,
    ) -> Float[Tensor, ""]:
        items = embeddings if memory is None else torch.cat([embeddings, memory])
        grades = grades_of_lists(embeddings, labels, memory, memory_labels)
        distances = squared_distances(embeddings, items)
        lists = (distances, hamming_distances(embeddings.detach(), items.detach()), grades)
        rule: Any = {
            "margin": self.margin_of_bits * embeddings.shape[1]
            if self.margin is None
            else self.margin,
            "gamma": self.gamma,
            "weighting": self.weighting,
            "tie_keys": self._tie_keys(distances.detach()),
        }
        if indices_tuple is None:
            sums = sum_all(*lists, **rule)
        else:
            first = 0 if memory is None else len(embeddings)
            chosen = check_triplets(indices_tuple, grades, first, self.weighting)
            sums = sum_chosen(chosen, *lists, **rule)
        self.last = Sums(*(number.detach() for number in sums))
        divisor = {
            "sum": torch.ones_like(sums.total),
            "mean": sums.triplets,
            "active": sums.active,
            "weight": sums.weights,
            "anchor": sums.anchors,
        }[self.reduction]
        # No triplet, no loss: 0/0 must not become NaN.
        return sums.total / torch.where(divisor > 0, divisor, 1)

    @property
    def active_share(self) -> float:
        """The share of the last batch's triplets that were within the margin."""
        return 0.0 if self.last is None else float(self.last.active / self.last.triplets.clamp(1))

    @property
    def n_triplets(self) -> int:
        """How many triplets the last batch had."""
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


def _check_choice(name: str, got: str, choices: tuple[str, ...]) -> None:
    if got not in choices:
        raise InputError(f"{name} must be one of {', '.join(choices)}; got {got!r}")
