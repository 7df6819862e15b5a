"""CSQ: central similarity quantization."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbithash.errors import InputError
from orbithash.losses.centers import hash_centers, memberships
from orbithash.losses.inputs import check_embeddings


class CentralSimilarityLoss(nn.Module):
    """Brings every image to the code of its class, which was fixed beforehand.

    The mean binary cross-entropy between embedding and code, plus `quantization` times the mean
    log cosh(|2h − 1| − 1), a smooth pull towards {0, 1}. An image of several classes is brought to
    the majority of their codes, bit by bit; where they are even the first class decides. An image
    of no class has nowhere to go and does not count.

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
        members = memberships(labels, len(embeddings), len(centers)).to(embeddings)
        labelled = members.any(dim=1)
        votes = members @ centers
        first = centers[members.argmax(dim=1)]
        targets = torch.where(votes == 0, first, votes.sign())[labelled]
        chosen = embeddings[labelled]
        n = max(1, chosen.numel())
        entropies = nn.functional.binary_cross_entropy(chosen, (targets + 1) / 2, reduction="sum")
        away = ((2 * chosen - 1).abs() - 1).cosh().log().sum()
        return (entropies + self.quantization * away) / n
