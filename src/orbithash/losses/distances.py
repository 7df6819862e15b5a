"""Distances between embeddings: squared Euclidean with gradient, and Hamming of their codes."""

from typing import Any

import torch
from jaxtyping import Float, Int16
from torch import Tensor
from torch.autograd.function import once_differentiable

from orbithash.kernels.distances import squared_distances as compiled_squared_distances


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
