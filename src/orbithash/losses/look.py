"""The look of images beside their labels: codes that also keep the neighbours of a teacher."""

from collections.abc import Sequence
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from orbithash.errors import InputError
from orbithash.losses.order_aware import BatchLists, OrderAwareTripletLoss, batch_lists
from orbithash.losses.teacher import NEIGHBOUR_SHARES, check_shares, neighbour_grades


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
        given = [each for each in (labels, ref_labels) if isinstance(each, Tensor)]
        partly = any(bool(unlabelled(each).any()) for each in given)
        lists = grades = None
        if self.weight > 0:
            if teacher is None:
                raise InputError(
                    "the look of images needs a teacher; pass teacher=, a vector for each embedding"
                )
            of_lists = (None, ref_emb, None) if partly else (labels, ref_emb, ref_labels)
            lists = batch_lists(embeddings, *of_lists)
            grades = neighbour_grades(teacher, ref_teacher, self.shares, skipped=lists.skipped)
        value = embeddings.new_zeros(())
        if self.loss is not None and partly:
            memory = labelled(ref_emb, ref_labels)
            value = self._by_labels(*labelled(embeddings, labels), *memory, lists=None)
        elif self.loss is not None:
            value = self._by_labels(embeddings, labels, ref_emb, ref_labels, lists=lists)
        if lists is not None:
            scale: Tensor | None = getattr(self.loss, "weight_scale", None)
            term = self.look(embeddings, grades=grades, lists=lists)
            value = value + self.weight * (1 if scale is None else scale) * term
        self._count_triplets()
        return value

    def _by_labels(
        self,
        embeddings: Tensor | None,
        labels: Tensor | None,
        ref_emb: Tensor | None,
        ref_labels: Tensor | None,
        *,
        lists: BatchLists | None,
    ) -> Tensor:
        """Return the loss by labels; `lists` are those of the same images, if they are known."""
        assert self.loss is not None
        others: dict[str, Any] = {}
        if ref_emb is not None and len(ref_emb):
            others = {"ref_emb": ref_emb, "ref_labels": ref_labels}
        if lists is not None and type(self.loss) is OrderAwareTripletLoss:
            others["lists"] = lists  # distances are computed once
        value: Tensor = self.loss(embeddings, labels, **others)
        return value

    def _count_triplets(self) -> None:
        """Set `active_share` and `n_triplets` of the last batch, if the loss has them.

        They are those of the loss by labels, or of the term by the teacher if it is alone.
        """
        counted: Any = self.look if self.loss is None else self.loss
        if hasattr(counted, "active_share") and hasattr(counted, "n_triplets"):
            self.active_share, self.n_triplets = counted.active_share, counted.n_triplets

    def extra_repr(self) -> str:
        return f"weight={self.weight}, shares={self.shares}"


def unlabelled(labels: Tensor) -> Bool[Tensor, " n"]:
    """Return a mask of the images that are marked by -1 as without labels."""
    marks = labels == -1
    return marks.all(dim=1) if labels.ndim == 2 else marks


def labelled(
    embeddings: Tensor | None, labels: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """Return the embeddings and labels of the images that have labels."""
    if embeddings is None or labels is None:
        return embeddings, labels
    kept = ~unlabelled(labels)
    return embeddings[kept.to(embeddings.device)], labels[kept]
