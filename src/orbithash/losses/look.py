"""The look of images beside their labels: codes that also keep the neighbours of a teacher."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from orbithash.errors import InputError
from orbithash.losses.batch.pairs import moved
from orbithash.losses.order_aware import BatchLists, OrderAwareTripletLoss, batch_lists
from orbithash.losses.teacher import (
    NEIGHBOUR_SHARES,
    check_shares,
    most_graded,
    neighbour_grades,
)


class LookLoss(nn.Module):
    """A loss by labels, plus an order-aware loss by the neighbours in a teacher's space.

    A loss by labels alone brings the images of a class together in no order. The second term, by
    ΔNDCG, orders them as a teacher does, such as the features of a frozen backbone: see
    `orbithash.losses.teacher.neighbour_grades`.

    The second term is the weighted mean Σ λ·hinge² / Σ λ over all its triplets, so that it does not
    depend on their number. An order-aware loss by labels is such a mean times its `weight_scale`,
    which changes with the data and as training proceeds: the second term is multiplied by the same
    number, a constant without gradient, and one weight serves different data. Beside other losses
    it is not scaled.

    Args:
        loss: The loss by labels; None learns from the teacher alone, without labels.
        weight: The weight of the term by the teacher; with 0 it is left out.
        margin_of_bits: The margin of this term as a fraction of the bits.
        shares: The parts of a list that are graded, the nearest images first.
    """

    def __init__(
        self,
        loss: nn.Module | None,
        weight: float,
        *,
        margin_of_bits: float = 1 / 16,
        shares: Sequence[float] = NEIGHBOUR_SHARES,
    ) -> None:
        super().__init__()
        check_shares(shares)
        if not 0 <= weight < float("inf") or (loss is None and weight == 0):
            raise InputError(
                f"weight is {weight}; give a finite number from 0 on, above 0 without a loss by "
                "labels"
            )
        if not 0 < margin_of_bits < float("inf"):
            raise InputError(
                f"margin_of_bits is {margin_of_bits}; give a number above 0, such as 1/16"
            )
        self.weight, self.shares = weight, tuple(shares)
        self.loss = loss
        self.look = OrderAwareTripletLoss(weighting="ndcg", reduction="weight")
        self.look.margin_of_bits = margin_of_bits

    @property
    def takes_teacher(self) -> bool:
        """Whether `forward` needs `teacher`."""
        return self.weight > 0

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor | None = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
        teacher: Tensor | None = None,
        ref_teacher: Tensor | None = None,
    ) -> Float[Tensor, ""]:
        """Return the loss of a batch.

        Args:
            embeddings: (images, bits) in [0, 1].
            labels: As the loss by labels takes them; −1, or a row of −1, marks an image without
                labels, which takes part in the term by the teacher alone.
            ref_emb: A memory, for losses that take one.
            ref_labels: The labels of the memory.
            teacher: The teacher's vectors of the batch, (images, d).
            ref_teacher: The teacher's vectors of the memory.
        """
        if self.weight > 0 and teacher is None:
            raise InputError(
                "the look of images needs a teacher; pass teacher=, a vector for each embedding"
            )
        value = embeddings.new_zeros(())
        lists = None
        if self.weight > 0 or self._shares_lists():
            plain = without_marks(labels), without_marks(ref_labels)
            lists = batch_lists(embeddings, plain[0], ref_emb, plain[1])
        if self.loss is not None:
            value = self._by_labels(embeddings, labels, ref_emb, ref_labels, lists)
        if self.weight > 0 and lists is not None and teacher is not None:
            grades = neighbour_grades(
                teacher, ref_teacher, self.shares, skipped=lists.skipped, checks=lists.checks
            )
            term = self.look(
                embeddings,
                grades=grades,
                lists=lists,
                max_positives=most_graded(self.shares, grades.shape[1]),
            )
            scale: Tensor | None = getattr(self.loss, "weight_scale", None)
            value = value + self.weight * (1 if scale is None else scale) * term
        return value

    def _shares_lists(self) -> bool:
        """Whether the loss by labels takes the lists of the batch: distances are computed once."""
        return getattr(type(self.loss), "forward", None) is OrderAwareTripletLoss.forward

    def _by_labels(
        self,
        embeddings: Tensor,
        labels: Tensor | None,
        ref_emb: Tensor | None,
        ref_labels: Tensor | None,
        lists: BatchLists | None,
    ) -> Tensor:
        """Return the loss by labels, over the images that have labels."""
        assert self.loss is not None
        value: Tensor
        if lists is not None and labels is not None and self._shares_lists():
            plain = without_marks(labels), without_marks(ref_labels)
            value = self.loss(
                embeddings,
                plain[0],
                ref_labels=plain[1],
                lists=labelled_lists(lists, labels, ref_labels),
            )
            return value
        ref_emb, ref_labels = labelled(ref_emb, ref_labels)
        others: dict[str, Any] = {}
        if ref_emb is not None and len(ref_emb):
            others = {"ref_emb": ref_emb, "ref_labels": ref_labels}
        value = self.loss(*labelled(embeddings, labels), **others)
        return value

    # Read from the device only when they are asked for.

    @property
    def active_share(self) -> float:
        """The share of active triplets in the last batch, if the loss counts them.

        Of the loss by labels, or of the term by the teacher if it is alone.
        """
        counted: Any = self.look if self.loss is None else self.loss
        return float(counted.active_share)

    @property
    def n_triplets(self) -> int:
        """The number of triplets in the last batch, as `active_share`."""
        counted: Any = self.look if self.loss is None else self.loss
        return int(counted.n_triplets)

    def extra_repr(self) -> str:
        return f"weight={self.weight}, shares={self.shares}"


def unlabelled(labels: Tensor) -> Bool[Tensor, " n"]:
    """Return a mask of the images that are marked by -1 as without labels."""
    marks = labels == -1
    return marks.all(dim=1) if labels.ndim == 2 else marks


def without_marks(labels: Tensor | None) -> Tensor | None:
    """Return a table of labels with rows of zeros for images without labels."""
    if not isinstance(labels, Tensor) or labels.ndim != 2:
        return labels
    return labels.masked_fill(unlabelled(labels)[:, None], 0)


def labelled_lists(lists: BatchLists, labels: Tensor, ref_labels: Tensor | None) -> BatchLists:
    """Leave out the images without labels, as anchors and as items of lists."""
    device = lists.skipped.device
    anchors = items = moved(unlabelled(labels), device)
    if ref_labels is not None:
        items = torch.cat([anchors, moved(unlabelled(ref_labels), device)])
    return lists._replace(skipped=lists.skipped | anchors[:, None] | items)


def labelled(
    embeddings: Tensor | None, labels: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """Return the embeddings and labels of the images that have labels."""
    if embeddings is None or not isinstance(labels, Tensor):
        return embeddings, labels
    marked = unlabelled(labels)
    if not marked.any():
        return embeddings, labels
    kept = (~marked).nonzero()[:, 0]
    return embeddings[moved(kept, embeddings.device)], labels[kept]
