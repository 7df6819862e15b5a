"""HashNet: deep learning to hash by continuation."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbithash.errors import InputError
from orbithash.losses.batch.inputs import check_embeddings, check_labels
from orbithash.losses.batch.pairs import labels_in_common, pairs_once
from orbithash.losses.deep_pairwise import negative_log_likelihoods


class HashNetLoss(nn.Module):
    """Weighted negative log-likelihood of which pairs are related, with a sharpening activation.

    Codes are tanh(β z) of the last layer's output z. β grows with every step, so the activation
    approaches the sign and no quantization term is needed. A pair is related with probability
    sigmoid(alpha · inner product). Related pairs are rare: in every batch, related and unrelated
    pairs have equal total weight.

    Our networks end with a sigmoid, h = sigmoid(2z), so z is atanh(2h − 1) = logit(h) / 2.

    Cao, Long, Wang and Yu, "HashNet: Deep Learning to Hash by Continuation", ICCV 2017.

    Args:
        alpha: Factor from inner product to logit; default 10 / bits.
        growth: Increase of β² per training step; β starts at 1.
    """

    step: Tensor

    def __init__(self, *, alpha: float | None = None, growth: float = 0.005) -> None:
        super().__init__()
        if (alpha is not None and not alpha > 0) or not growth >= 0:
            raise InputError(
                f"alpha={alpha}, growth={growth}; alpha must be above 0 and growth at least 0"
            )
        self.alpha, self.growth = alpha, growth
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def forward(self, embeddings: Float[Tensor, "n bits"], labels: Tensor) -> Float[Tensor, ""]:
        check_embeddings(embeddings)
        check_labels(labels, len(embeddings))
        beta = (1 + self.growth * int(self.step)) ** 0.5
        if self.training:
            self.step += 1
        # eps keeps the logits of 0 and 1 finite.
        outputs = embeddings.logit(eps=torch.finfo(embeddings.dtype).eps) / 2
        codes = (beta * outputs).tanh()
        alpha = 10 / embeddings.shape[1] if self.alpha is None else self.alpha

        related = labels_in_common(labels, labels).to(codes.device) > 0
        pairs = pairs_once(related)
        losses = negative_log_likelihoods(alpha * codes @ codes.T, related)
        means = [
            losses.where(kind, 0).sum() / kind.sum().clamp(1)
            for kind in (related & pairs, ~related & pairs)
        ]
        return (means[0] + means[1]) / 2
