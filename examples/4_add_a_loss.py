"""A loss of your own, compared with order-aware triplets on handwritten digits.

    python examples/4_add_a_loss.py

A loss is any torch module that is called with embeddings in [0, 1] and labels and returns a number.
Once it is in `LOSSES`, everything that trains knows it by its name.
"""

import numpy as np
import torch
from torch import Tensor, nn

from orbithash.data import LabelledFeatures
from orbithash.data.benchmarks import DATASETS
from orbithash.evaluation import evaluate_encoder, mean_average_precision
from orbithash.losses import LOSSES
from orbithash.training import TrainingSettings, train_on_features

N_BITS = 16


class ContrastiveLoss(nn.Module):
    """Related pairs should be alike, others at least `margin` bits apart.

    Hadsell, Chopra and LeCun, "Dimensionality Reduction by Learning an Invariant Mapping", 2006.
    """

    def __init__(self, margin: float = N_BITS / 2) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        distances = (embeddings[:, None] - embeddings[None]).abs().sum(dim=2)
        related = labels[:, None] == labels[None]
        return torch.where(related, distances, (self.margin - distances).relu()).pow(2).mean()


def main() -> None:
    LOSSES["contrastive"] = ContrastiveLoss
    digits = DATASETS["digits"]()
    data = LabelledFeatures(
        digits.pixels().astype(np.float32), digits.labels.astype(np.int64), digits.split
    )
    settings = TrainingSettings(epochs=15, hidden=128)
    for method in ("contrastive", "order-aware"):
        trained = train_on_features(data, method, N_BITS, settings, score=mean_average_precision)
        print(f"{method}: MAP {evaluate_encoder(trained.encoder, data).map:.4f}")


if __name__ == "__main__":
    main()
