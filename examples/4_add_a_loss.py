"""Compare a loss of your own with order-aware triplets, on handwritten digits.

A loss is any torch module that takes embeddings in [0, 1] and labels, and returns a scalar.
"""

import torch
from torch import Tensor, nn

import orbithash


class ContrastiveLoss(nn.Module):
    """Hadsell et al., "Dimensionality Reduction by Learning an Invariant Mapping", 2006."""

    margin = 8.0  # bits between images of different classes

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        distances = torch.cdist(embeddings, embeddings, p=1)
        hinge = (self.margin - distances).relu()
        return torch.where(labels[:, None] == labels, distances, hinge).square().mean()


for name, method in {"contrastive": ContrastiveLoss(), "order-aware": "order-aware"}.items():
    encoder = orbithash.train("digits", bits=16, method=method, epochs=15, hidden=128)
    print(f"{name}: MAP {orbithash.evaluate(encoder, 'digits').map:.4f}")
