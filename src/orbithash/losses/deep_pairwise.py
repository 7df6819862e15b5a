"""DPSH: deep pairwise-supervised hashing."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from orbithash.errors import InputError
from orbithash.losses.batch.inputs import check_embeddings, check_labels
from orbithash.losses.batch.pairs import labels_in_common, pairs_once


class DeepPairwiseLoss(nn.Module):
    """Negative log-likelihood of which pairs are related, plus a quantization term.

    With u = 2h − 1, a pair is related with probability sigmoid(u_i·u_j / 2). The loss is the mean
    negative log-likelihood over pairs, plus `eta` times the mean of |sign(u) − u|² over images.

    Li, Wang and Kang, "Feature Learning based Deep Supervised Hashing with Pairwise Labels",
    IJCAI 2016.
    """

    def __init__(self, *, eta: float = 0.1) -> None:
        super().__init__()
        if not eta >= 0:
            raise InputError(f"eta={eta}; the weight of the quantization term must be at least 0")
        self.eta = eta

    def forward(self, embeddings: Float[Tensor, "n bits"], labels: Tensor) -> Float[Tensor, ""]:
        check_embeddings(embeddings)
        check_labels(labels, len(embeddings))
        n = len(embeddings)
        u = 2 * embeddings - 1
        related = labels_in_common(labels, labels).to(u.device) > 0
        losses = negative_log_likelihoods(u @ u.T / 2, related)
        pairs = losses.where(pairs_once(related), 0).sum() / max(1, n * (n - 1) // 2)
        signs = torch.where(u.detach() > 0, 1.0, -1.0).to(u)
        return pairs + self.eta * (signs - u).square().sum() / max(1, n)


def negative_log_likelihoods(
    logits: Float[Tensor, "n n"], related: Bool[Tensor, "n n"]
) -> Float[Tensor, "n n"]:
    """Return the binary cross-entropy with logits of every pair; HashNet uses it too.

    A pair with logit x is related with probability sigmoid(x).
    """
    # −log likelihood = log(1 + e^x) − y·x with y = 1 for a related pair, 0 for an unrelated one.
    # torch's binary_cross_entropy_with_logits rounds differently and would change recorded results.
    return nn.functional.softplus(logits) - related * logits
