"""DSH: deep supervised hashing."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbithash.errors import InputError
from orbithash.losses.distances import squared_distances
from orbithash.losses.inputs import check_embeddings, check_labels
from orbithash.losses.relations import labels_in_common


class DeepSupervisedLoss(nn.Module):
    """Pulls related pairs together, pushes others a margin apart, and outputs towards ±1.

    With b = 2h − 1 and D = |b_i − b_j|², the mean over all pairs of D/2 if they are related and
    max(margin − D, 0)/2 if not, plus `alpha` times how far the entries of both are from ±1.

    Liu, Wang, Shan and Chen, "Deep Supervised Hashing for Fast Image Retrieval", CVPR 2016.

    Args:
        margin: In units of D, where a bit that differs counts 4; twice the bits if not given.
        alpha: Weight of the pull towards ±1.
    """

    margin_of_bits: ClassVar[float] = 2.0  # unless a margin is given

    def __init__(self, *, margin: float | None = None, alpha: float = 0.01) -> None:
        super().__init__()
        if (margin is not None and not 0 <= margin < float("inf")) or not alpha >= 0:
            raise InputError(f"margin={margin}, alpha={alpha}; both must be at least 0")
        self.margin, self.alpha = margin, alpha

    def forward(self, embeddings: Float[Tensor, "n bits"], labels: Tensor) -> Float[Tensor, ""]:
        check_embeddings(embeddings)
        check_labels(labels, len(embeddings))
        n, n_bits = embeddings.shape
        margin = self.margin_of_bits * n_bits if self.margin is None else self.margin
        similar = labels_in_common(labels, labels).to(embeddings.device) > 0
        distances = 4 * squared_distances(embeddings, embeddings)
        pairs = torch.where(similar, distances, (margin - distances).relu()) / 2
        one_of_two = torch.ones_like(similar).triu(diagonal=1)
        n_pairs = max(1, n * (n - 1) // 2)
        # An image is in n − 1 pairs, each of which counts both of its two.
        away = (1 - (2 * embeddings - 1).abs()).sum() * (n - 1)
        return (pairs.where(one_of_two, 0).sum() + self.alpha * away) / n_pairs
