"""Smooth-AP: average precision with a sigmoid in place of each comparison of two ranks."""

from typing import Any

import torch
from jaxtyping import Float, Int16
from torch import Tensor
from torch.autograd.function import once_differentiable

from orbithash.errors import InputError
from orbithash.losses.batch.listwise import ListwiseLoss, cosines

CHUNK = 2**21  # number of comparisons in memory at once; several tensors have this size


class SmoothAveragePrecisionLoss(ListwiseLoss):
    """1 − the mean of AP, where item j precedes item i by sigmoid((sⱼ − sᵢ)/temperature).

    The similarity s of an item is its cosine to the anchor, both as 2h − 1. The smooth rank of a
    related item is 1 + the sum of these over all other items; AP is the mean over related items of
    the rank among related items, divided by the rank among all.

    All related items of a list are compared with all of its items, in chunks: the memory does not
    grow with the cube of the batch.

    Brown, Xie, Kalogeiton and Zisserman, "Smooth-AP: Smoothing the Path Towards Large-Scale Image
    Retrieval", ECCV 2020.
    """

    def __init__(self, *, temperature: float = 0.01) -> None:
        super().__init__()
        if not 0 < temperature < float("inf"):
            raise InputError(
                f"temperature={temperature}; it must be above 0 and finite; the paper uses 0.01"
            )
        self.temperature = temperature

    def scores(
        self,
        anchors: Float[Tensor, "n bits"],
        items: Float[Tensor, "m bits"],
        grades: Int16[Tensor, "n m"],
    ) -> Float[Tensor, " n"]:
        similarities = cosines(anchors, items)
        scores: Tensor = _SmoothAveragePrecision.apply(  # type: ignore[no-untyped-call]
            similarities, grades, self.temperature
        )
        return scores

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}"


class _SmoothAveragePrecision(torch.autograd.Function):
    """Smooth AP of each list; `forward` also computes its gradient, `backward` only scales it."""

    @staticmethod
    def forward(ctx: Any, similarities: Tensor, grades: Tensor, temperature: float) -> Tensor:
        scores = similarities.new_zeros(len(similarities))
        gradients = torch.zeros_like(similarities)
        is_related, is_ranked = (grades > 0).to(similarities), (grades >= 0).to(similarities)
        n_related = is_related.sum(dim=1)
        anchors, related = (grades > 0).nonzero(as_tuple=True)
        size = max(1, CHUNK // max(1, grades.shape[1]))
        for start in range(0, len(anchors), size):
            lists, own = anchors[start : start + size], related[start : start + size, None]
            rows = similarities[lists]
            before = (rows - rows.gather(1, own)).div_(temperature).sigmoid_()
            slopes = (1 - before).mul_(before).mul_(is_ranked[lists]).scatter_(1, own, 0)
            before.mul_(is_ranked[lists]).scatter_(1, own, 1)  # an item counts in its own rank
            rank = before.sum(dim=1)
            rank_of_related = before.mul_(is_related[lists]).sum(dim=1)
            scores.index_add_(0, lists, rank_of_related / rank / n_related[lists])
            # d(r⁺/r) = (dr⁺ − r⁺/r·dr)/r; moving the item itself has the opposite sign of all.
            slopes.mul_(is_related[lists] - (rank_of_related / rank)[:, None])
            slopes.div_((rank * n_related[lists] * temperature)[:, None])
            slopes.scatter_(1, own, -slopes.sum(dim=1, keepdim=True))
            gradients.index_add_(0, lists, slopes)
        ctx.save_for_backward(gradients)
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:
        (gradients,) = ctx.saved_tensors
        return scale[:, None] * gradients, None, None
