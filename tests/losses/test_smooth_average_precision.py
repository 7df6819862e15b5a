import pytest
import torch

from literal_lists import batch_with_memory, cosine, literal_list_loss
from loss_batches import assert_same_value_and_gradient
from orbithash.errors import InputError
from orbithash.losses import LOSSES, smooth_average_precision


def literal_score(anchor, others, temperature):
    similarities = [cosine(anchor, item) for item, _ in others]
    related = [i for i, (_, grade) in enumerate(others) if grade > 0]
    total = 0
    for i in related:
        rank = rank_of_related = 1
        for j in range(len(others)):
            if j == i:
                continue
            before = ((similarities[j] - similarities[i]) / temperature).sigmoid()
            rank = rank + before
            if j in related:
                rank_of_related = rank_of_related + before
        total = total + rank_of_related / rank
    return total / len(related)


@pytest.mark.parametrize(("temperature", "chunk"), [(0.01, 2**21), (0.5, 2**21), (0.5, 30)])
@pytest.mark.parametrize("many_labels", [False, True])
@pytest.mark.parametrize("with_memory", [False, True])
def test_loss_and_gradient_equal_the_literal_loop(
    monkeypatch, chunk, temperature, many_labels, with_memory
):
    monkeypatch.setattr(smooth_average_precision, "CHUNK", chunk)
    embeddings, labels, *memory = batch_with_memory(many_labels=many_labels)
    memory = memory if with_memory else (None, None)
    ours = LOSSES["smooth-ap"](temperature=temperature)(embeddings, labels, *memory)
    theirs = literal_list_loss(
        lambda anchor, others: literal_score(anchor, others, temperature),
        embeddings,
        labels,
        *memory,
    )
    assert_same_value_and_gradient(ours, theirs, embeddings)


def test_gradcheck_passes_for_batch_and_memory():
    embeddings, labels, memory, memory_labels = batch_with_memory()
    memory, memory_labels = memory[3:].requires_grad_(), memory_labels[3:]
    loss = LOSSES["smooth-ap"](temperature=0.1)
    torch.autograd.gradcheck(lambda e, m: loss(e, labels, m, memory_labels), (embeddings, memory))


def test_a_low_temperature_gives_the_ap_of_the_ranking():
    """Relevance by rank 0 1 0 1 has AP 1/2; the other anchors have no related items."""
    angles = torch.tensor([0.0, 0.3, 0.6, 0.9, 1.2], dtype=torch.float64)
    embeddings = torch.stack([angles.cos(), angles.sin()], dim=1) / 2 + 0.5
    labels = torch.tensor([[1, 1, 0], [0, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 0]])
    anchor = embeddings[:1]
    value = LOSSES["smooth-ap"](temperature=1e-4)(anchor, labels[:1], embeddings[1:], labels[1:])
    assert float(value) == pytest.approx(0.5)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf")])
def test_invalid_options_are_refused(temperature):
    with pytest.raises(InputError, match="temperature="):
        LOSSES["smooth-ap"](temperature=temperature)
