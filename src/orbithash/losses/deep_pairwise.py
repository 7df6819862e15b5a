"""How likely it is that two images are related, by the inner product of their codes.

DPSH and HashNet share it: a pair with inner product p is related with the probability sigmoid(s·p).
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from orbithash.errors import InputError
from orbithash.losses.inputs import check_embeddings, check_labels
from orbithash.losses.relations import labels_in_common


def negative_log_likelihoods(
    inner: Float[Tensor, "n n"], similar: Bool[Tensor, "n n"]
) -> Float[Tensor, "n n"]:
    """−log of the probability that each pair is as it is, given log-odds `inner`."""
    # log(1 + e^x) − s·x, written so that large x do not overflow.
    return nn.functional.softplus(inner) - similar * inner


class DeepPairwiseLoss(nn.Module):
    """Likelihood of who is related, given inner products of codes, and a pull towards ±1.

    With u = 2h − 1, a pair is related with the probability sigmoid(u_i·u_j / 2). What is minimised
    is the mean over pairs of the negative log-likelihood, plus `eta` times the mean over images of
    |sign(u) − u|².

    Li, Wang and Kang, "Feature Learning based Deep Supervised Hashing with Pairwise Labels",
    IJCAI 2016.
    """

    def __init__(self, *, eta: float = 0.1) -> None:
        super().__init__()
        if not eta >= 0:
            raise InputError(f"eta={eta}; the weight of the pull towards ±1 must be at least 0")
        self.eta = eta

    def forward(self, embeddings: Float[Tensor, "n bits"], labels: Tensor) -> Float[Tensor, ""]:
        check_embeddings(embeddings)
        check_labels(labels, len(embeddings))
        n = len(embeddings)
        u = 2 * embeddings - 1
        similar = labels_in_common(labels, labels).to(u.device) > 0
        losses = negative_log_likelihoods(u @ u.T / 2, similar)
        one_of_two = torch.ones_like(similar).triu(diagonal=1)
        pairs = losses.where(one_of_two, 0).sum() / max(1, n * (n - 1) // 2)
        signs = torch.where(u.detach() > 0, 1.0, -1.0).to(u)
        return pairs + self.eta * (signs - u).square().sum() / max(1, n)
