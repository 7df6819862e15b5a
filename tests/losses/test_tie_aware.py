import math

import numpy as np
import pytest
import torch
from scipy.special import polygamma
from torch.testing import assert_close

from literal_lists import batch_with_memory, literal_list_loss, soft_counts
from loss_batches import assert_same_value_and_gradient
from orbithash.losses import LOSSES
from orbithash.losses.tie_aware import mean_reciprocal
from orbithash.metrics.ndcg import expected_ndcg
from orbithash.metrics.precision import expected_average_precision

TIE_AWARE = ["tie-aware-ap", "tie-aware-ndcg"]


def expected_distance(first, second):
    """The chance that two random bits differ, summed over the bits."""
    return (first * (1 - second) + second * (1 - first)).sum()


def digamma(x):
    """ψ(x) = ψ(x + 1) − 1/x, and a series for large x; torch's has a less exact derivative."""
    steps = sum(1 / (x + k) for k in range(30))
    x = torch.as_tensor(x + 30, dtype=torch.float64)
    return x.log() - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4) - 1 / (252 * x**6) - steps


def literal_average_precision(anchor, others):
    distances = [expected_distance(anchor, item) for item, _ in others]
    counts = soft_counts(distances, [1] * len(others), len(anchor) + 1)
    related = soft_counts(distances, [int(grade > 0) for _, grade in others], len(anchor) + 1)
    total, before, related_before = 0, 0, 0
    for n, n_related in zip(counts, related, strict=True):
        if n_related > 0:
            # Σ 1/t and Σ (t − before − 1)/t over the ranks t of the tie
            reciprocals = digamma(before + n + 1) - digamma(before + 1)
            others_before = n - (before + 1) * reciprocals
            other_chance = (n_related - 1) / (n - 1)
            total = total + n_related / n * (
                (related_before + 1) * reciprocals + other_chance * others_before
            )
        before, related_before = before + n, related_before + n_related
    return total / sum(grade > 0 for _, grade in others)


def literal_ndcg(anchor, others):
    distances = [expected_distance(anchor, item) for item, _ in others]
    gains = [2**grade - 1 for _, grade in others]
    counts = soft_counts(distances, [1] * len(others), len(anchor) + 1)
    gained = soft_counts(distances, gains, len(anchor) + 1)
    total, before = 0, 0
    for n, gain in zip(counts, gained, strict=True):
        for rank in range(1, len(others) + 1):
            overlap = min(before + n, rank) - max(before, rank - 1)
            if overlap > 0:
                total = total + gain / n * overlap / math.log2(1 + rank)
        before = before + n
    best = sorted(gains, reverse=True)
    return total / sum(gain / math.log2(1 + rank) for rank, gain in enumerate(best, start=1))


LITERAL = {"tie-aware-ap": literal_average_precision, "tie-aware-ndcg": literal_ndcg}


@pytest.mark.parametrize("name", TIE_AWARE)
@pytest.mark.parametrize("many_labels", [False, True])
@pytest.mark.parametrize("with_memory", [False, True])
def test_loss_and_gradient_equal_the_literal_loop(name, many_labels, with_memory):
    embeddings, labels, *memory = batch_with_memory(many_labels=many_labels)
    memory = memory if with_memory else (None, None)
    ours = LOSSES[name]()(embeddings, labels, *memory)
    theirs = literal_list_loss(LITERAL[name], embeddings, labels, *memory)
    assert_same_value_and_gradient(ours, theirs, embeddings)


@pytest.mark.parametrize("name", TIE_AWARE)
def test_gradcheck_passes_for_batch_and_memory(name):
    embeddings, labels, memory, memory_labels = batch_with_memory(many_labels=True)
    memory, memory_labels = memory[3:].requires_grad_(), memory_labels[3:]
    torch.autograd.gradcheck(
        lambda e, m: LOSSES[name]()(e, labels, m, memory_labels), (embeddings, memory)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("many_labels", [False, True])
def test_the_losses_of_bits_are_1_minus_the_expected_scores(many_labels, dtype):
    """4 bits and 60 images: nearly all items are tied."""
    rng = np.random.default_rng(0)
    bits = rng.random((60, 4)) < 0.5
    labels = rng.random((60, 3)) < 0.4 if many_labels else np.eye(5)[rng.integers(5, size=60)] > 0
    grades = labels.astype(int) @ labels.T
    np.fill_diagonal(grades, -1)
    distances = (bits[:, None] != bits[None]).sum(axis=2)

    def histogram(counted):
        return np.stack([(counted & (distances == d)).sum(axis=1) for d in range(5)], axis=1)

    items = histogram(grades >= 0)
    by_grade = np.stack([histogram(grades == g) for g in range(1, grades.max() + 1)], axis=1)
    scores = {
        "tie-aware-ap": expected_average_precision(items, histogram(grades > 0)),
        "tie-aware-ndcg": expected_ndcg(items, by_grade),
    }
    for name, score in scores.items():
        loss = LOSSES[name]()(torch.from_numpy(bits).to(dtype), torch.from_numpy(labels))
        tolerance = 1e-5 if dtype == torch.float32 else 1e-12
        assert float(loss) == pytest.approx(1 - np.nanmean(score), abs=tolerance)


def test_an_item_on_its_way_between_two_bins_changes_ap_steadily():
    """The second item moves away from the anchor, over ties with the third at distance 2."""
    steps = torch.linspace(0, 1, 41, dtype=torch.float64)
    codes = torch.zeros(3, 4, dtype=torch.float64)
    codes[2, :2] = 1
    losses = []
    for step in steps:
        codes[1, :3] = step
        losses.append(float(LOSSES["tie-aware-ap"]()(codes, torch.tensor([0, 0, 1]))))
    differences = np.diff(losses)
    assert losses[0] == pytest.approx(0)
    assert np.abs(differences).max() < 0.1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_means_of_reciprocals_are_accurate_for_all_counts(dtype):
    first = torch.tensor([[1.0, 1.5, 2.0, 7.25, 30.0, 100.0]], dtype=torch.float64).T
    count = torch.tensor([[0.0, 0.3, 1.0, 2.0, 9.5, 400.0]], dtype=torch.float64)
    first, count = (part.expand(6, 6).contiguous() for part in (first, count))
    expected = (torch.digamma(first + count) - torch.digamma(first)) / count
    expected[:, 0] = torch.from_numpy(polygamma(1, first[:, 0].numpy()))  # the limit
    got = mean_reciprocal(first.to(dtype), count.to(dtype)).double()
    tolerance = 1e-6 if dtype == torch.float32 else 1e-11
    assert_close(got, expected, rtol=tolerance, atol=0)
