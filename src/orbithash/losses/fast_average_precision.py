"""FastAP: average precision from a histogram of distances."""

import torch
from jaxtyping import Float, Int16
from torch import Tensor

from orbithash.errors import InputError
from orbithash.losses.batch.listwise import ListwiseLoss, cosines, is_ranked, soft_histogram


class FastAveragePrecisionLoss(ListwiseLoss):
    """1 − the mean of FastAP, the area under the precision-recall curve of binned distances.

    Squared distances of b = 2h − 1, normalised to length 1, are in [0, 4]. They are divided among
    the nearest two of `n_bins` + 1 equidistant centres. With h related items in bin j, and H⁺
    related ones of H items in bins 0 … j, FastAP is the sum of h · H⁺/H over the bins, divided by
    the number of related items.

    Cakir, He, Xia, Kulis and Sclaroff, "Deep Metric Learning to Rank", CVPR 2019.
    """

    def __init__(self, *, n_bins: int = 10) -> None:
        super().__init__()
        if n_bins < 1:
            raise InputError(f"n_bins={n_bins}; give a number of bins, at least 1")
        self.n_bins = n_bins

    def scores(
        self,
        anchors: Float[Tensor, "n bits"],
        items: Float[Tensor, "m bits"],
        grades: Int16[Tensor, "n m"],
    ) -> Float[Tensor, " n"]:
        # (2 − 2·cosine) / 4, in bins
        positions = (1 - cosines(anchors, items)) / 2 * self.n_bins
        is_related = (grades > 0).to(positions)
        related = soft_histogram(positions, is_related, self.n_bins + 1)
        up_to = soft_histogram(positions, is_ranked(grades, positions), self.n_bins + 1).cumsum(1)
        precisions = related.cumsum(dim=1) / torch.where(up_to > 0, up_to, 1)
        return (related * precisions).sum(dim=1) / is_related.sum(dim=1)

    def extra_repr(self) -> str:
        return f"n_bins={self.n_bins}"
