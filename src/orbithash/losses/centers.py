"""Fixed target codes of classes, far from each other: the targets of CSQ and OrthoHash."""

import torch
from jaxtyping import Float
from torch import Tensor

from orbithash.errors import InputError
from orbithash.losses.inputs import check_labels


def hash_centers(n_classes: int, n_bits: int, seed: int) -> Float[Tensor, "{n_classes} {n_bits}"]:
    """Return a code of ±1 for each class: rows of ± a Hadamard matrix, or random codes.

    Hadamard rows differ in half of their bits, or in all. They are used if `n_bits` is a power of
    two and there are at most 2 · `n_bits` classes; otherwise random codes do nearly as well.

    >>> hash_centers(3, 4, seed=0) @ hash_centers(3, 4, seed=0).T
    tensor([[4., 0., 0.],
            [0., 4., 0.],
            [0., 0., 4.]])
    """
    if n_classes < 1 or n_bits < 1:
        raise InputError(f"n_classes={n_classes}, n_bits={n_bits}; both must be at least 1")
    if n_bits & (n_bits - 1) == 0 and n_classes <= 2 * n_bits:
        rows = torch.ones(1, 1)
        while len(rows) < n_bits:
            rows = torch.cat([torch.cat([rows, rows], 1), torch.cat([rows, -rows], 1)])
        return torch.cat([rows, -rows])[:n_classes].clone()
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2, (n_classes, n_bits), generator=generator).float() * 2 - 1


def multi_hot(labels: Tensor, n_images: int, n_classes: int) -> Float[Tensor, "n classes"]:
    """Return labels of either form as a 0-1 table with a column per class."""
    check_labels(labels, n_images)
    if labels.ndim == 2:
        if labels.shape[1] != n_classes:
            raise InputError(f"got labels of {labels.shape[1]} classes; the loss has {n_classes}")
        return labels.float()
    if n_images and not 0 <= int(labels.min()) <= int(labels.max()) < n_classes:
        raise InputError(
            f"got labels from {int(labels.min())} to {int(labels.max())}; the loss has "
            f"{n_classes} classes, numbered from 0"
        )
    return torch.nn.functional.one_hot(labels.long(), n_classes).float()
