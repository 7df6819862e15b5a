"""Distances between embeddings: squared Euclidean with gradient, and Hamming of their codes."""

from typing import Any

import torch
from jaxtyping import Float, Int16
from torch import Tensor
from torch.autograd.function import once_differentiable

from orbithash.kernels import distances as compiled


def squared_distances(
    rows: Float[Tensor, "n bits"], columns: Float[Tensor, "m bits"]
) -> Float[Tensor, "n m"]:
    """Squared Euclidean distances by summed differences: exactly 0 between equal embeddings."""
    distances: Tensor = _SquaredDistances.apply(rows, columns)  # type: ignore[no-untyped-call]
    return distances


def hamming_distances(
    rows: Float[Tensor, "n bits"], columns: Float[Tensor, "m bits"]
) -> Int16[Tensor, "n m"]:
    """In how many bits the codes of two embeddings differ."""
    ours, theirs = (rows > 0.5).float(), (columns > 0.5).float()
    # Integers up to 1024: exact in float32.
    both = ours @ theirs.T
    return (ours.sum(dim=1)[:, None] + theirs.sum(dim=1) - 2 * both).to(torch.int16)


def compiled_for(device: torch.device) -> bool:
    """Whether the compiled kernels serve this device; plain tensor operations serve the others."""
    return device.type == "cpu"


class _SquaredDistances(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, columns: Tensor) -> Tensor:
        ctx.save_for_backward(rows, columns)
        if compiled_for(rows.device):
            by_bit = columns.detach().T.contiguous().numpy()
            return torch.from_numpy(
                compiled.squared_distances(rows.detach().contiguous().numpy(), by_bit)
            )
        return plain_squared_distances(rows, columns)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor, Tensor]:
        rows, columns = ctx.saved_tensors
        with torch.autocast(rows.device.type, enabled=False):  # also if backward runs within one
            # d|a − b|²/da = 2 (a − b), summed over all b at once, and the same for b.
            of_rows = 2 * (slopes.sum(dim=1)[:, None] * rows - slopes @ columns)
            of_columns = 2 * (slopes.sum(dim=0)[:, None] * columns - slopes.T @ rows)
        return of_rows, of_columns


def plain_squared_distances(
    rows: Float[Tensor, "n bits"], columns: Float[Tensor, "m bits"]
) -> Float[Tensor, "n m"]:
    """The same by tensor operations, on any device, and to the last bit on the CPU."""
    distances = rows.new_zeros(len(rows), len(columns))
    for bit in range(rows.shape[1]):
        distances += (rows[:, bit, None] - columns[:, bit]).square()
    return distances
