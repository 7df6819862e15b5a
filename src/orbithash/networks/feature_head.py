"""A network for features: what turns a fixed backbone's vectors into bits."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbithash.errors import InputError

SPREAD = 2.0  # of a bit's sums before the sigmoid: its outputs are neither all 0.5 nor all 0 and 1
ROWS_TO_FIT = 1 << 16  # at most: far more than a mean and a spread need


class FeatureHead(nn.Module):
    """Features to embeddings in [0, 1]: a hidden layer, or none, then a linear layer and a sigmoid.

    Without a hidden layer this is the last layer of Chen et al., 2018. With one, it is followed by
    layer normalisation (Ba, Kiros and Hinton, 2016), ReLU and dropout.

    `fit_start` is to be called before training, or one learning rate would not suit features of
    any length.
    """

    center: Tensor
    scale: Tensor

    def __init__(
        self, n_features: int, n_bits: int, *, hidden: int = 1024, dropout: float = 0.3
    ) -> None:
        super().__init__()
        if hidden < 0 or not 0 <= dropout < 1:
            raise InputError(
                f"hidden={hidden}, dropout={dropout}; give a number of units, 0 for a linear "
                "head, and a share below 1 to drop"
            )
        self.n_features, self.n_bits = n_features, n_bits
        self.hidden, self.dropout = hidden, dropout
        self.register_buffer("center", torch.zeros(n_features))
        self.register_buffer("scale", torch.ones(()))
        self.hidden_layers = nn.Sequential()
        if hidden:
            self.hidden_layers.append(nn.Linear(n_features, hidden))
            self.hidden_layers.append(nn.LayerNorm(hidden))
            self.hidden_layers.append(nn.ReLU())
            self.hidden_layers.append(nn.Dropout(dropout))
        self.hash_layer = nn.Linear(hidden or n_features, n_bits)

    def forward(
        self, features: Float[Tensor, "n {self.n_features}"]
    ) -> Float[Tensor, "n {self.n_bits}"]:
        # Where other runtimes work out the sigmoid, rounding can lead beyond 1.
        return self.sums(features).sigmoid().clamp(0, 1)

    def sums(
        self, features: Float[Tensor, "n {self.n_features}"]
    ) -> Float[Tensor, "n {self.n_bits}"]:
        """What the sigmoid turns into embeddings."""
        hidden = self.hidden_layers((features - self.center) * self.scale)
        sums: Tensor = self.hash_layer(hidden)
        return sums

    @torch.no_grad()
    def fit_start(
        self, features: Float[Tensor, "n {self.n_features}"], *, spread: bool = True
    ) -> None:
        """Fit the random start to the features that will be trained on.

        Their mean becomes 0 and their overall standard deviation 1, which a linear layer could say
        as well. Unless `spread` is off, every bit starts as a random half of the images, with sums
        of the same spread: from sums near 0, as drawn, a loss on distances takes long to get away.

        Of very many features every second, third, … decides: what they pass through on the way is
        held in memory.
        """
        features = features[:: -(-len(features) // ROWS_TO_FIT)]
        self.center.copy_(features.mean(dim=0))
        deviation = (features - self.center).square().mean().sqrt()
        # Features that are all the same tell nothing, but must not become NaN.
        self.scale.copy_(1 / deviation if deviation > 0 else torch.ones(()))
        if not spread:
            return
        was_training = self.training
        sums = self.eval().sums(features)
        deviations = sums.std(dim=0, correction=0)
        factors = torch.where(deviations > 0, SPREAD / deviations, 1)
        self.hash_layer.weight.mul_(factors[:, None])
        self.hash_layer.bias.sub_(self.sums(features).mean(dim=0))
        self.train(was_training)
