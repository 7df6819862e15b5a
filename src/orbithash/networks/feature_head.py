"""A network for features: what turns a fixed backbone's vectors into bits."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbithash.errors import InputError

SPREAD = 2.0  # of a bit's sums before the sigmoid at the start: neither all 0.5 nor all 0 and 1


class FeatureHead(nn.Module):
    """Features to embeddings in [0, 1]: a hidden layer, or none, then a linear layer and a sigmoid.

    Without a hidden layer and batch normalisation this is the last layer of Chen et al., 2018.
    Features are first centred and scaled by two constants of the training set (`standardise`), so
    that one learning rate suits vectors of any length; a linear layer alone could say the same.

    Batch normalisation (Ioffe and Szegedy, 2015) follows both linear layers. On the hash layer it
    keeps every bit set for about half of the images, and its sigmoid where it has a slope.
    """

    center: Tensor
    scale: Tensor

    def __init__(
        self,
        n_features: int,
        n_bits: int,
        *,
        hidden: int = 1024,
        dropout: float = 0.2,
        batch_norm: bool = True,
    ) -> None:
        super().__init__()
        if hidden < 0 or not 0 <= dropout < 1:
            raise InputError(
                f"hidden={hidden}, dropout={dropout}; give a number of units, 0 for a linear "
                "head, and a share below 1 to drop"
            )
        self.n_features, self.n_bits = n_features, n_bits
        self.hidden, self.dropout, self.batch_norm = hidden, dropout, batch_norm
        self.register_buffer("center", torch.zeros(n_features))
        self.register_buffer("scale", torch.ones(()))
        self.layers = nn.Sequential()
        if hidden:
            self.layers.append(nn.Linear(n_features, hidden))
            if batch_norm:
                self.layers.append(nn.BatchNorm1d(hidden))
            self.layers.append(nn.ReLU())
            self.layers.append(nn.Dropout(dropout))
        self.layers.append(nn.Linear(hidden or n_features, n_bits))
        if batch_norm:
            normalise = nn.BatchNorm1d(n_bits)
            nn.init.constant_(normalise.weight, SPREAD)
            self.layers.append(normalise)

    def forward(
        self, features: Float[Tensor, "n {self.n_features}"]
    ) -> Float[Tensor, "n {self.n_bits}"]:
        embeddings: Tensor = self.layers((features - self.center) * self.scale).sigmoid()
        return embeddings

    def standardise(self, features: Float[Tensor, "n {self.n_features}"]) -> None:
        """Take these features' mean for 0 and their overall standard deviation for 1."""
        self.center.copy_(features.mean(dim=0))
        deviation = (features - self.center).square().mean().sqrt()
        # Features that are all the same tell nothing, but must not become NaN.
        self.scale.copy_(1 / deviation if deviation > 0 else torch.ones(()))
