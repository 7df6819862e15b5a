"""The pairs of a batch as tensors: labels in common (as in `orbithash.relevance`) and distances."""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int16
from torch import Tensor
from torch.autograd.function import once_differentiable

from orbithash.kernels.distances import squared_distances as compiled_squared_distances

NOT_RANKED = -1  # grade of an item that is not in an anchor's list: the anchor, or a copy of it


def labels_in_common(labels: Tensor, others: Tensor) -> Int16[Tensor, "n m"]:
    """Count the labels that two images share: 0 or 1 for integer labels, more for 0-1 tables."""
    if labels.ndim == 1:
        return (labels[:, None] == others[None, :]).to(torch.int16)
    return (labels.float() @ others.float().T).to(torch.int16)


def grades_of_lists(
    embeddings: Float[Tensor, "n bits"],
    labels: Tensor,
    memory: Float[Tensor, "m bits"] | None = None,
    memory_labels: Tensor | None = None,
) -> Int16[Tensor, "n list"]:
    """Count the labels that each anchor shares with the images of batch and memory.

    The anchor itself, and copies of it in the memory, have the grade `NOT_RANKED`.
    """
    others = labels if memory_labels is None else torch.cat([labels, memory_labels])
    copies = copies_of_anchors(embeddings, labels, memory, memory_labels)
    return labels_in_common(labels, others).masked_fill_(copies, NOT_RANKED)


def copies_of_anchors(
    embeddings: Float[Tensor, "n bits"],
    labels: Tensor | None,
    memory: Float[Tensor, "m bits"] | None = None,
    memory_labels: Tensor | None = None,
) -> Bool[Tensor, "n list"]:
    """Return a mask of the items of batch and memory that are the anchor itself or a copy of it."""
    itself = torch.eye(len(embeddings), dtype=torch.bool, device=embeddings.device)
    if memory is None:
        return itself
    return torch.cat([itself, same_item(embeddings, labels, memory, memory_labels)], dim=1)


def pairs_once(related: Bool[Tensor, "n n"]) -> Bool[Tensor, "n n"]:
    """Return a mask of the pairs (i, j) with i < j."""
    return torch.ones_like(related).triu(diagonal=1)


def same_item(
    embeddings: Float[Tensor, "n bits"],
    labels: Tensor | None,
    memory: Float[Tensor, "m bits"],
    memory_labels: Tensor | None,
) -> Bool[Tensor, "n m"]:
    """Return a mask of copies: memory items with the embedding and labels of an image in the batch.

    A memory has no ids to compare. Another image with the same labels, if there are any, and
    exactly the same embedding counts as the anchor too.
    """
    same = _equal_rows(embeddings.detach(), memory.detach())
    if labels is None or memory_labels is None:
        return same
    if labels.ndim == 1:
        return same & (labels[:, None] == memory_labels[None, :])
    return same & _equal_rows(labels, memory_labels)


def squared_distances(
    rows: Float[Tensor, "n bits"], columns: Float[Tensor, "m bits"]
) -> Float[Tensor, "n m"]:
    """Return squared Euclidean distances as sums of squared differences.

    They are exactly 0 between equal embeddings, which |a|² + |b|² − 2ab is not.
    """
    distances: Tensor = _SquaredDistances.apply(rows, columns)  # type: ignore[no-untyped-call]
    return distances


def hamming_distances(
    rows: Float[Tensor, "n bits"], columns: Float[Tensor, "m bits"]
) -> Int16[Tensor, "n m"]:
    """Return the number of bits in which the codes of two embeddings differ."""
    row_bits, column_bits = (rows > 0.5).float(), (columns > 0.5).float()
    # Integers up to 1024: exact in float32.
    both = row_bits @ column_bits.T
    return (row_bits.sum(dim=1)[:, None] + column_bits.sum(dim=1) - 2 * both).to(torch.int16)


def uses_kernels(device: torch.device) -> bool:
    """Return whether the compiled kernels run on this device: only on the CPU."""
    return device.type == "cpu"


def _equal_rows(left: Tensor, right: Tensor) -> Bool[Tensor, "n m"]:
    # Number the distinct rows once: pairs then compare a number instead of a row.
    rows = torch.cat([left, right])
    numbers: Tensor = rows.unique(dim=0, return_inverse=True)[1]  # type: ignore[no-untyped-call]
    return numbers[: len(left), None] == numbers[None, len(left) :]


class _SquaredDistances(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, columns: Tensor) -> Tensor:
        ctx.save_for_backward(rows, columns)
        if uses_kernels(rows.device):
            return torch.from_numpy(
                compiled_squared_distances(rows.detach().numpy(), columns.detach().numpy())
            )
        # In tensor operations, one bit at a time: the order in which the kernel adds.
        distances = rows.new_zeros(len(rows), len(columns))
        for bit in range(rows.shape[1]):
            distances += (rows[:, bit, None] - columns[:, bit]).square()
        return distances

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        rows, columns = ctx.saved_tensors
        # Backward may run inside an autocast region.
        with torch.autocast(rows.device.type, enabled=False):
            # d|a − b|²/da = 2 (a − b), summed over all b at once, and the same for b.
            row_gradient = 2 * (gradient.sum(dim=1)[:, None] * rows - gradient @ columns)
            column_gradient = 2 * (gradient.sum(dim=0)[:, None] * columns - gradient.T @ rows)
        return row_gradient, column_gradient
