"""The pairs of a batch as tensors: labels in common (as in `orbithash.relevance`) and distances."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int16, Int64
from torch import Tensor
from torch.autograd.function import once_differentiable

from orbithash.kernels.distances import squared_distances as compiled_squared_distances

CHUNK = 2**20  # number of distances computed at once in tensor operations
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


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device, without waiting for the work that is queued there."""
    return tensor.to(device, non_blocking=tensor.device.type == "cpu" and device.type == "cuda")


def without_autocast(device: torch.device) -> AbstractContextManager[None]:
    """Return a context in which nothing is computed in half precision."""
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    context: AbstractContextManager[None] = torch.autocast(device.type, enabled=False)
    return context


def most_related(labels: Tensor, others: Tensor | None) -> int | None:
    """Return at least the number of related images of any image; None if labels are on a device.

    `others` are the labels of the memory.
    """
    if labels.device.type != "cpu" or (others is not None and others.device.type != "cpu"):
        return None
    rows, items = (
        labels.numpy(),
        (labels if others is None else torch.cat([labels, others])).numpy(),
    )
    if not len(rows):
        return 0
    if rows.ndim == 1:
        return int(np.unique(items, return_counts=True)[1].max()) - 1
    common = rows.astype(np.float32) @ items.astype(np.float32).T
    return int(np.count_nonzero(common, axis=1).max())


def _equal_rows(left: Tensor, right: Tensor) -> Bool[Tensor, "n m"]:
    # Number the distinct rows once: pairs then compare a number instead of a row.
    rows = torch.cat([left, right])
    if uses_kernels(rows.device):
        numbers: Tensor = rows.unique(dim=0, return_inverse=True)[1]  # type: ignore[no-untyped-call]
    else:
        numbers = _number_rows(rows)
    return numbers[: len(left), None] == numbers[None, len(left) :]


def _number_rows(rows: Tensor) -> Int64[Tensor, " n"]:
    """Number distinct rows as `unique` does, but for which the host need not know how many.

    Rows are sorted by a fingerprint of 64 bits, and neighbours compared.
    """
    if rows.is_floating_point():
        rows = rows + 0.0  # −0 becomes 0
        rows = rows.view(torch.int64 if rows.dtype == torch.float64 else torch.int32)
    rows = rows.long()
    factors = torch.arange(1, rows.shape[1] + 1, device=rows.device) * 0x1E3779B97F4A7C15
    factors = (factors ^ factors >> 29) * 0x3F58476D1CE4E5B9
    order = (rows * (factors ^ factors >> 32 | 1)).sum(dim=1).argsort()
    ordered = rows[order]
    differs = (ordered[1:] != ordered[:-1]).any(dim=1).cumsum(dim=0)
    return torch.zeros_like(order).scatter_(0, order[1:], differs)


class _SquaredDistances(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, columns: Tensor) -> Tensor:
        ctx.save_for_backward(rows, columns)
        if uses_kernels(rows.device):
            return torch.from_numpy(
                compiled_squared_distances(rows.detach().numpy(), columns.detach().numpy())
            )
        return _sum_squares(rows, columns)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        rows, columns = ctx.saved_tensors
        # Backward may run inside an autocast region.
        with without_autocast(rows.device):
            # d|a − b|²/da = 2 (a − b), summed over all b at once, and the same for b.
            row_gradient = 2 * (gradient.sum(dim=1)[:, None] * rows - gradient @ columns)
            column_gradient = 2 * (gradient.sum(dim=0)[:, None] * columns - gradient.T @ rows)
        return row_gradient, column_gradient


def _sum_squares(
    rows: Float[Tensor, "n bits"], columns: Float[Tensor, "m bits"]
) -> Float[Tensor, "n m"]:
    """Add up squared differences in tensor operations, bit after bit, as the kernel does.

    In place, in blocks of rows and of bits. A fused product and sum would round once where the
    kernel rounds twice, and order close distances otherwise.
    """
    distances = rows.new_zeros(len(rows), len(columns))
    by_bit = columns.T.unsqueeze(1).contiguous()  # [bit, 1, column]
    n_rows = max(1, CHUNK // max(1, len(columns)))
    n_bits = max(1, CHUNK // max(1, min(n_rows, len(rows)) * len(columns)))
    for start in range(0, len(rows), n_rows):
        sums = distances[start : start + n_rows]
        block = rows[start : start + n_rows].T.unsqueeze(2)  # [bit, row, 1]
        buffer = rows.new_empty(min(n_bits, len(block)), *sums.shape)
        for bit in range(0, len(block), n_bits):
            some = block[bit : bit + n_bits]
            squares = buffer[: len(some)]
            torch.sub(some, by_bit[bit : bit + n_bits], out=squares)
            for square in squares.mul_(squares).unbind():
                sums.add_(square)
    return distances
