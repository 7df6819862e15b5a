"""DSH: deep supervised hashing."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbithash.errors import InputError
from orbithash.losses.batch.inputs import check_embeddings, check_labels
from orbithash.losses.batch.pairs import labels_in_common, pairs_once, squared_distances


class DeepSupervisedLoss(nn.Module):
    """Contrastive loss over all pairs, plus a quantization term.

    With b = 2h − 1 and D = |b_i − b_j|², the mean over all pairs of D/2 if they are related and
    max(margin − D, 0)/2 if not, plus `alpha` times the L1 distance of both b from ±1.

    Liu, Wang, Shan and Chen, "Deep Supervised Hashing for Fast Image Retrieval", CVPR 2016.

    Args:
        margin: In units of D, where a differing bit counts 4; default: twice the bits.
        alpha: Weight of the quantization term.
    """

    margin_of_bits: ClassVar[float] = 2.0  # default margin, as a multiple of the bits

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
        related = labels_in_common(labels, labels).to(embeddings.device) > 0
        distances = 4 * squared_distances(embeddings, embeddings)
        losses = torch.where(related, distances, (margin - distances).relu()) / 2
        n_pairs = max(1, n * (n - 1) // 2)
        # The paper adds the term of both images of a pair; each image is in n − 1 pairs.
        quantization = (1 - (2 * embeddings - 1).abs()).sum() * (n - 1)
        return (losses.where(pairs_once(related), 0).sum() + self.alpha * quantization) / n_pairs
