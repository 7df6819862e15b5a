import pytest
import torch

from literal_lists import batch_with_memory, cosine, literal_list_loss, soft_counts
from loss_batches import assert_same_value_and_gradient
from orbithash.errors import InputError
from orbithash.losses import LOSSES


def literal_score(anchor, others, n_bins):
    squared_distances = [2 - 2 * cosine(anchor, item) for item, _ in others]
    positions = [distance * n_bins / 4 for distance in squared_distances]
    is_related = [int(grade > 0) for _, grade in others]
    counts = soft_counts(positions, [1] * len(others), n_bins + 1)
    related = soft_counts(positions, is_related, n_bins + 1)
    total = 0
    for j in range(n_bins + 1):
        if related[j] > 0:
            total = total + related[j] * sum(related[: j + 1]) / sum(counts[: j + 1])
    return total / sum(is_related)


@pytest.mark.parametrize("n_bins", [1, 10])
@pytest.mark.parametrize("many_labels", [False, True])
@pytest.mark.parametrize("with_memory", [False, True])
def test_loss_and_gradient_equal_the_literal_loop(n_bins, many_labels, with_memory):
    embeddings, labels, *memory = batch_with_memory(many_labels=many_labels)
    memory = memory if with_memory else (None, None)
    ours = LOSSES["fast-ap"](n_bins=n_bins)(embeddings, labels, *memory)
    theirs = literal_list_loss(
        lambda anchor, others: literal_score(anchor, others, n_bins), embeddings, labels, *memory
    )
    assert_same_value_and_gradient(ours, theirs, embeddings)


def test_gradcheck_passes_for_batch_and_memory():
    embeddings, labels, memory, memory_labels = batch_with_memory()
    memory, memory_labels = memory[3:].requires_grad_(), memory_labels[3:]
    torch.autograd.gradcheck(
        lambda e, m: LOSSES["fast-ap"]()(e, labels, m, memory_labels), (embeddings, memory)
    )


def test_invalid_options_are_refused():
    with pytest.raises(InputError, match="n_bins=0"):
        LOSSES["fast-ap"](n_bins=0)
