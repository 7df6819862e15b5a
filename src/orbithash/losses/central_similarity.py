"""CSQ: central similarity quantization."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbithash.errors import InputError
from orbithash.losses.centers import hash_centers, multi_hot
from orbithash.losses.inputs import check_embeddings


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
