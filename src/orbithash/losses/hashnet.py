"""HashNet: deep learning to hash by continuation."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbithash.errors import InputError
from orbithash.losses.deep_pairwise import negative_log_likelihoods
from orbithash.losses.inputs import check_embeddings, check_labels
from orbithash.losses.relations import labels_in_common


class HashNetLoss(nn.Module):
    """Weighted likelihood of who is related, while the activation grows towards the sign.

    Codes are tanh(β z) of the layer's output z, with β growing from step to step, so that no pull
    towards ±1 is needed. A pair is related with the probability sigmoid(alpha · inner product).
    Related pairs are few: each kind of pair weighs as much as the other, in every batch.

    The network ends with a sigmoid h of z', so z = z'/2 is atanh(2h − 1).

    Cao, Long, Wang and Yu, "HashNet: Deep Learning to Hash by Continuation", ICCV 2017.

    Args:
        alpha: Log-odds per unit of inner product; 10 / bits if not given.
        growth: β² grows by so much in every step of training, from 1 on.
    """

    step: Tensor

    def __init__(self, *, alpha: float | None = None, growth: float = 0.005) -> None:
        super().__init__()
        if (alpha is not None and not alpha > 0) or not growth >= 0:
            raise InputError(
                f"alpha={alpha}, growth={growth}; give alpha above 0, growth not below"
            )
        self.alpha, self.growth = alpha, growth
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def forward(self, embeddings: Float[Tensor, "n bits"], labels: Tensor) -> Float[Tensor, ""]:
        check_embeddings(embeddings)
        check_labels(labels, len(embeddings))
        beta = (1 + self.growth * int(self.step)) ** 0.5
        if self.training:
            self.step += 1
        # Away from 0 and 1, whose logits are infinite.
        outputs = embeddings.logit(eps=torch.finfo(embeddings.dtype).eps) / 2
        codes = (beta * outputs).tanh()
        alpha = 10 / embeddings.shape[1] if self.alpha is None else self.alpha

        similar = labels_in_common(labels, labels).to(codes.device) > 0
        one_of_two = torch.ones_like(similar).triu(diagonal=1)
        related, unrelated = similar & one_of_two, ~similar & one_of_two
        losses = negative_log_likelihoods(alpha * codes @ codes.T, similar)
        means = [losses.where(kind, 0).sum() / kind.sum().clamp(1) for kind in (related, unrelated)]
        return (means[0] + means[1]) / 2
