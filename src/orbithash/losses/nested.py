"""Nested codes: a loss of every prefix of the embeddings, so that each prefix is a good code.

Kusupati et al., "Matryoshka Representation Learning", NeurIPS 2022, train float embeddings so.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from orbithash.errors import InputError
from orbithash.losses.teacher import takes_teacher


class NestedLoss(nn.Module):
    """Weighted sum of the losses of the first n bits, with a loss for each n.

    Each loss is called with the first n columns of the embeddings and, if there is one, of the
    memory. The losses may differ: those with fixed codes of the classes, or with a margin in bits,
    are made for one length. Triplets are counted if the losses count them. A teacher's vectors are
    passed to the losses that take them.

    Args:
        losses: A loss by number of bits; the largest is the length of the embeddings.
        weights: A weight by number of bits; default: those of `length_weights`.
    """

    def __init__(
        self, losses: Mapping[int, nn.Module], weights: Mapping[int, float] | None = None
    ) -> None:
        super().__init__()
        self.lengths = tuple(sorted(losses))
        self.weights = length_weights(self.lengths) if weights is None else dict(weights)
        if not self.lengths or self.weights.keys() != losses.keys():
            raise InputError(
                f"got losses of {self.lengths} bits and weights of {tuple(self.weights)}; give at "
                "least one loss, and a weight for each"
            )
        self.losses = nn.ModuleDict({str(n): losses[n] for n in self.lengths})

    def forward(
        self,
        embeddings: Float[Tensor, "n bits"],
        labels: Tensor,
        ref_emb: Float[Tensor, "m bits"] | None = None,
        ref_labels: Tensor | None = None,
        teacher: Tensor | None = None,
        ref_teacher: Tensor | None = None,
    ) -> Float[Tensor, ""]:
        """Return the loss of a batch; `ref_emb` is a memory, for losses that take one."""
        if embeddings.shape[1] != self.lengths[-1]:
            raise InputError(
                f"got embeddings of {embeddings.shape[1]} bits; the longest of the nested losses "
                f"is for {self.lengths[-1]}"
            )
        total = embeddings.new_zeros(())
        for n in self.lengths:
            loss, others = self.loss_of(n), dict[str, Any]()
            if ref_emb is not None:
                others = {"ref_emb": ref_emb[:, :n], "ref_labels": ref_labels}
            if takes_teacher(loss):
                others |= {"teacher": teacher, "ref_teacher": ref_teacher}
            total = total + self.weights[n] * loss(embeddings[:, :n], labels, **others)
        return total

    @property
    def takes_teacher(self) -> bool:
        """Whether any of the losses needs `teacher`."""
        return any(takes_teacher(loss) for loss in self.losses.values())

    def loss_of(self, n_bits: int) -> nn.Module:
        """Return the loss of the first `n_bits` bits."""
        return self.losses[str(n_bits)]

    @property
    def active_share(self) -> float:
        """The mean share of active triplets in the last batch, if all losses count them."""
        losses: list[Any] = list(self.losses.values())
        return float(sum(loss.active_share for loss in losses) / len(losses))

    @property
    def n_triplets(self) -> int:
        """The number of triplets in the last batch, if all losses count them."""
        losses: list[Any] = list(self.losses.values())
        return sum(loss.n_triplets for loss in losses)


def length_weights(lengths: Sequence[int]) -> dict[int, float]:
    """Return the weight of the loss of each length: all have the same.

    Higher weights of short lengths cost more at long ones, see experiments/nested_weights.md.

    >>> length_weights((16, 64))
    {16: 1.0, 64: 1.0}
    """
    return dict.fromkeys(lengths, 1.0)
