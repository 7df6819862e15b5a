"""Tie-aware AP and NDCG of Hamming rankings, relaxed by soft histograms, as losses.

He, Cakir, Bargal and Sclaroff, "Hashing as Tie-Aware Learning to Rank", CVPR 2018. The distance of
two embeddings is (bits − b·b′)/2 with b = 2h − 1: for 0 and 1 the Hamming distance, between them
its mean if h are the chances of 1. Each distance is divided among the two nearest integers, and the
scores are computed from the resulting counts of items (n) and of related items (n⁺) at each
distance. At embeddings of 0 and 1, the losses are 1 − the expected scores of `orbithash.metrics`.
"""

import torch
from jaxtyping import Float, Int16
from torch import Tensor

from orbithash.losses.batch.listwise import ListwiseLoss, is_ranked, soft_histogram
from orbithash.losses.batch.pairs import squared_distances

EXACT_TERMS = 16  # of a harmonic sum, before an asymptotic series takes over


class TieAwareAveragePrecisionLoss(ListwiseLoss):
    """1 − the mean of tie-aware AP: the mean AP over all orders of the ties.

    With N items (N⁺ related) nearer than a distance at which there are n (n⁺), AP is the sum of

        n⁺/n · Σ (N⁺ + 1 + (t − N − 1)·(n⁺ − 1)/(n − 1)) / t    over the ranks t = N + 1 … N + n

    over all distances, divided by the number of related items. Counts of soft histograms are real
    numbers. The sum of 1/t then is ψ(N + n + 1) − ψ(N + 1) with the digamma function ψ, which is
    the same for integers, smooth between them, and has no pole at n = 0 or n = 1. (The authors'
    code has n⁺ times the precision at the middle of the tie, (2N⁺ + n⁺ + 1)/(2N + n + 1), instead:
    an approximation, also for integers.)

    He, Cakir, Bargal and Sclaroff, "Hashing as Tie-Aware Learning to Rank", CVPR 2018.
    """

    def scores(
        self,
        anchors: Float[Tensor, "n bits"],
        items: Float[Tensor, "m bits"],
        grades: Int16[Tensor, "n m"],
    ) -> Float[Tensor, " n"]:
        return soft_average_precision(anchors, items, grades)


class TieAwareNDCGLoss(ListwiseLoss):
    """1 − the mean of tie-aware NDCG: the mean NDCG over all orders of the ties.

    The gain of an item is 2^g − 1 for g labels in common, and the discount of rank t is
    1/log2(1 + t). All ranks of a tie have the mean gain of its items. By soft histograms, a tie
    may begin or end between two ranks: of these it has a share of the discount. (The authors'
    code has the discount of the middle of the tie instead: an approximation, also for integers.)

    He, Cakir, Bargal and Sclaroff, "Hashing as Tie-Aware Learning to Rank", CVPR 2018.
    """

    graded = True

    def scores(
        self,
        anchors: Float[Tensor, "n bits"],
        items: Float[Tensor, "m bits"],
        grades: Int16[Tensor, "n m"],
    ) -> Float[Tensor, " n"]:
        return soft_ndcg(anchors, items, grades)


def soft_average_precision(
    anchors: Float[Tensor, "n bits"], items: Float[Tensor, "m bits"], grades: Int16[Tensor, "n m"]
) -> Float[Tensor, " n"]:
    """Return the tie-aware AP of each anchor's list, from soft histograms."""
    distances, n_bins = expected_distances(anchors, items), anchors.shape[1] + 1
    is_related = (grades > 0).to(distances)
    counts = soft_histogram(distances, is_ranked(grades, distances), n_bins)
    related = soft_histogram(distances, is_related, n_bins)
    first = counts.cumsum(dim=1) - counts + 1
    related_before = related.cumsum(dim=1) - related

    # With m, the mean of 1/t over the ranks of the tie, the formula above is n⁺ times
    # (N⁺ + 1)·m + (n⁺ − 1)·(1 − (N + 1)·m)/(n − 1). Near n = 1, the last quotient is written as
    # (1 − (N + 1)·m′)/n, where m′ is the mean over all ranks but the first.
    mean = mean_reciprocal(first, counts)
    near_1 = (counts - 1).abs() < 0.5
    quotient = torch.where(
        near_1,
        (1 - first * mean_reciprocal(first + 1, counts - 1)) / torch.where(near_1, counts, 1),
        (1 - first * mean) / torch.where(near_1, 1, counts - 1),
    )
    precisions = (related_before + 1) * mean + (related - 1) * quotient
    return (related * precisions).sum(dim=1) / is_related.sum(dim=1)


def soft_ndcg(
    anchors: Float[Tensor, "n bits"], items: Float[Tensor, "m bits"], grades: Int16[Tensor, "n m"]
) -> Float[Tensor, " n"]:
    """Return the tie-aware NDCG of each anchor's list, from soft histograms."""
    distances, n_bins = expected_distances(anchors, items), anchors.shape[1] + 1
    # Gains relative to 2^highest, against overflow.
    highest = grades.amax(dim=1, keepdim=True).to(distances)
    gains = torch.exp2(grades.clamp_min(0) - highest) - torch.exp2(-highest)
    counts = soft_histogram(distances, is_ranked(grades, distances), n_bins)
    gained = soft_histogram(distances, gains, n_bins)
    discounts = 1 / torch.arange(2, grades.shape[1] + 3).to(distances).log2()
    before = counts.cumsum(dim=1) - counts
    ideal = gains.sort(dim=1, descending=True).values @ discounts[:-1]
    return (gained * mean_discount(before, counts, discounts)).sum(dim=1) / ideal


def expected_distances(
    rows: Float[Tensor, "n bits"], columns: Float[Tensor, "m bits"]
) -> Float[Tensor, "n m"]:
    """Return the mean Hamming distances of random bits that are 1 with these chances.

    >>> expected_distances(torch.tensor([[0.0, 1.0, 0.5]]), torch.tensor([[1.0, 1.0, 0.0]]))
    tensor([[1.5000]])
    """
    # p(1 − q) + q(1 − p) = (p − q)² + p(1 − p) + q(1 − q): exact for bits, whatever the precision.
    variances = [(part * (1 - part)).sum(dim=1) for part in (rows, columns)]
    return squared_distances(rows, columns) + variances[0][:, None] + variances[1]


def mean_reciprocal(
    first: Float[Tensor, "n bins"], count: Float[Tensor, "n bins"]
) -> Float[Tensor, "n bins"]:
    """Return the mean of 1/first, 1/(first + 1), … 1/(first + count − 1), also between integers.

    That is (ψ(first + count) − ψ(first)) / count, or Σ 1/((first + k)·(first + k + count)) over
    all k ≥ 0: terms that neither cancel nor have a pole at a count of 0.

    >>> mean_reciprocal(torch.tensor([[1.0, 3.0]]), torch.tensor([[2.0, 1.0]]))
    tensor([[0.7500, 0.3333]])
    """
    steps = torch.arange(EXACT_TERMS).to(first)
    near = first[..., None] + steps
    head = (1 / (near * (near + count[..., None]))).sum(dim=-1)
    # ψ(x + 1/2) = ln x + 1/24x² − 7/960x⁴ + 31/8064x⁶ − …; differences divided by the count.
    x = first + EXACT_TERMS - 0.5
    y = x + count
    u, v = x**-2, y**-2
    powers = 1 / 24 - (u + v) * 7 / 960 + (u * u + u * v + v * v) * 31 / 8064
    return head + logarithm_ratio(count / x) / x - (x + y) * u * v * powers


def logarithm_ratio(z: Float[Tensor, "n bins"]) -> Float[Tensor, "n bins"]:
    """Return log(1 + z)/z, by a series where the quotient or its derivative would lose digits."""
    is_small = z < 0.5
    large, small = torch.where(is_small, 1, z), torch.where(is_small, z, 0)
    square = (small / (2 + small)) ** 2
    series = torch.zeros_like(z)
    for power in range(19, 0, -2):  # log(1 + z) = 2·artanh(z/(2 + z))
        series = series * square + 1 / power
    return torch.where(is_small, 2 * series / (2 + small), large.log1p() / large)


def mean_discount(
    before: Float[Tensor, "n bins"],
    count: Float[Tensor, "n bins"],
    discounts: Float[Tensor, " ranks"],
) -> Float[Tensor, "n bins"]:
    """Return the mean discount of ties of `count` items after `before` items.

    Rank t has the stretch from t − 1 to t; a tie has a share of the ranks at both of its ends.

    >>> mean_discount(torch.tensor([[0.5]]), torch.tensor([[1.5]]), torch.tensor([6.0, 3.0, 1.0]))
    tensor([[4.]])
    """
    sums = torch.nn.functional.pad(discounts.cumsum(0), (1, 0))
    start = before.detach().long()
    end = (before + count).detach().long().maximum(start + 1)
    first, last = start + 1 - before, count - (end - before)
    within = count <= first  # one rank
    total = first * discounts[start] + sums[end] - sums[start + 1] + last * discounts[end]
    return torch.where(within, discounts[start], total / torch.where(within, 1, count))
