"""Losses of the form 1 − the mean score of the anchors' rank lists, and soft histograms."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Float, Int16
from torch import Tensor, nn

from orbithash.losses.batch.inputs import check_embeddings, check_labels, check_memory
from orbithash.losses.batch.pairs import grades_of_lists, squared_distances


class ListwiseLoss(nn.Module, ABC):
    """1 − the mean score of the anchors that have related items; 0 if there are none.

    The anchors are the batch; each has a list of all items of batch and memory but itself.
    """

    graded: ClassVar[bool] = False  # whether grades count the labels in common, or are 1 and 0

    @abstractmethod
    def scores(
        self,
        anchors: Float[Tensor, "n bits"],
        items: Float[Tensor, "m bits"],
        grades: Int16[Tensor, "n m"],
    ) -> Float[Tensor, " n"]:
        """Return the score of each anchor's list, 1 at best.

        Items that are not in an anchor's list have the grade `NOT_RANKED`. Only lists in which the
        order matters are passed: the others score 1, and have no gradient.
        """

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Float[Tensor, ""]:
        """Return the loss of a batch; `ref_emb` is a memory of further items of the lists."""
        check_embeddings(embeddings)
        check_labels(labels, len(embeddings))
        labels = labels.to(embeddings.device)
        if ref_emb is not None or ref_labels is not None:
            ref_emb, ref_labels = check_memory(embeddings, labels, ref_emb, ref_labels)
        # In float32 at least, autocast or not: differences of close distances decide the order.
        dtype = torch.float64 if embeddings.dtype == torch.float64 else torch.float32
        with torch.autocast(embeddings.device.type, enabled=False):
            embeddings = embeddings.to(dtype)
            if not len(embeddings):
                return embeddings.sum()
            memory = None if ref_emb is None else ref_emb.to(dtype)
            items = embeddings if memory is None else torch.cat([embeddings, memory])
            grades = grades_of_lists(embeddings, labels, memory, ref_labels)
            if not self.graded:
                grades = grades.clamp(max=1)
            highest = grades.amax(dim=1, keepdim=True)
            ordered = ((grades >= 0) & (grades < highest)).any(dim=1)
            scores = self.scores(embeddings[ordered], items, grades[ordered])
            return (1 - scores).sum() / (highest > 0).sum().clamp_min(1)


def soft_histogram(
    positions: Float[Tensor, "n list"], weights: Float[Tensor, "n list"], n_bins: int
) -> Float[Tensor, "n bins"]:
    """Return a histogram for each row, with bins centred at 0, 1, … `n_bins` − 1.

    An item between two centres is divided among both by its distance to them (triangular bins), so
    that the counts are differentiable in the positions.

    >>> soft_histogram(torch.tensor([[0.0, 1.25]]), torch.ones(1, 2), n_bins=3)
    tensor([[1.0000, 0.7500, 0.2500]])
    """
    lower = positions.detach().long().clamp(0, n_bins - 2)
    upper_share = positions - lower
    counts = positions.new_zeros(len(positions), n_bins)
    counts = counts.scatter_add(1, lower, weights * (1 - upper_share))
    return counts.scatter_add(1, lower + 1, weights * upper_share)


def cosines(
    anchors: Float[Tensor, "n bits"], items: Float[Tensor, "m bits"]
) -> Float[Tensor, "n m"]:
    """Return the cosines between embeddings mapped to [−1, 1]."""
    rows, columns = (torch.nn.functional.normalize(2 * part - 1) for part in (anchors, items))
    return 1 - squared_distances(rows, columns) / 2


def is_ranked(grades: Int16[Tensor, "n list"], like: Tensor) -> Float[Tensor, "n list"]:
    """Return 1 for items that are in an anchor's list and 0 for others."""
    return (grades >= 0).to(like)
