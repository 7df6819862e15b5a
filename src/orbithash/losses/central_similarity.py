"""CSQ: central similarity quantization, and the hash centers that it shares with OrthoHash."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbithash.errors import InputError
from orbithash.losses.inputs import check_embeddings, check_labels


class CentralSimilarityLoss(nn.Module):
    """Binary cross-entropy between each embedding and the fixed code of its class.

    The mean over bits, plus `quantization` times the mean of log cosh(|2h − 1| − 1), a smooth
    quantization term. The target of an image with several labels is the majority of their codes,
    bit by bit; the first class breaks ties. Images without labels are ignored.

    Yuan et al., "Central Similarity Quantization for Efficient Image and Video Retrieval", CVPR
    2020.
    """

    centers: Tensor

    def __init__(
        self, *, n_classes: int, n_bits: int, quantization: float = 1e-4, seed: int = 0
    ) -> None:
        super().__init__()
        if not quantization >= 0:
            raise InputError(f"quantization={quantization}; it must be at least 0")
        self.quantization = quantization
        self.register_buffer("centers", hash_centers(n_classes, n_bits, seed))

    def forward(self, embeddings: Float[Tensor, "n bits"], labels: Tensor) -> Float[Tensor, ""]:
        check_embeddings(embeddings)
        centers = self.centers.to(embeddings)
        classes = multi_hot(labels, len(embeddings), len(centers)).to(embeddings)
        labelled = classes.any(dim=1)
        votes = classes @ centers
        first_center = centers[classes.argmax(dim=1)]
        targets = torch.where(votes == 0, first_center, votes.sign())[labelled]
        h = embeddings[labelled]
        entropies = nn.functional.binary_cross_entropy(h, (targets + 1) / 2, reduction="sum")
        quantization = ((2 * h - 1).abs() - 1).cosh().log().sum()
        return (entropies + self.quantization * quantization) / max(1, h.numel())


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
    return nn.functional.one_hot(labels.long(), n_classes).float()
