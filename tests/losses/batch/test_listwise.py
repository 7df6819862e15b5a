"""What all losses of a list's score have in common."""

import pytest
import torch
from torch.testing import assert_close

from literal_lists import batch_with_memory
from orbithash.errors import InputError
from orbithash.losses import LOSSES

LISTWISE = ["tie-aware-ap", "tie-aware-ndcg", "fast-ap", "smooth-ap"]
pytestmark = pytest.mark.parametrize("name", LISTWISE)


def value_and_gradient(loss, embeddings, *others):
    embeddings = embeddings.detach().clone().requires_grad_()
    value = loss(embeddings, *others)
    value.backward()
    return value.detach(), embeddings.grad


@pytest.mark.parametrize(
    ("embeddings", "labels"),
    [
        (torch.rand(6, 8), torch.zeros(6, dtype=torch.int64)),
        (torch.rand(6, 8), torch.arange(6)),
        (torch.rand(1, 8), torch.zeros(1, dtype=torch.int64)),
        (torch.rand(0, 8), torch.zeros(0, dtype=torch.int64)),
        (torch.rand(6, 8), torch.zeros(6, 3)),
        (torch.rand(6, 8), torch.ones(6, 3)),
    ],
    ids=["one class", "all different", "one image", "no image", "no labels", "all labels"],
)
def test_a_batch_without_triplets_gives_zero_and_a_zero_gradient(name, embeddings, labels):
    value, gradient = value_and_gradient(LOSSES[name](), embeddings, labels)
    assert value == 0
    assert (gradient == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("embedding", [0.0, 0.3, 0.5, 1.0])
def test_identical_embeddings_give_a_finite_loss(name, embedding, dtype):
    embeddings, labels = torch.full((6, 8), embedding, dtype=dtype), torch.arange(6) % 3
    value, gradient = value_and_gradient(LOSSES[name](), embeddings, labels)
    assert value.dtype == dtype
    assert 0 < value < 1
    assert gradient.isfinite().all()


def test_codes_that_separate_the_classes_have_no_loss(name):
    codes = torch.tensor([[0.0] * 8, [1.0] * 8])
    assert_close(LOSSES[name]()(codes[[0, 0, 0, 1, 1]], torch.tensor([0, 0, 0, 1, 1])).item(), 0.0)


def test_a_copy_of_the_anchor_in_the_memory_is_not_in_its_list(name):
    embeddings, labels, memory, memory_labels = batch_with_memory()
    loss, anchor, label = LOSSES[name](), embeddings.detach()[:1], labels[:1]
    with_copy = torch.cat([anchor, memory]), torch.cat([label, memory_labels])
    assert_close(loss(anchor, label, *with_copy), loss(anchor, label, memory, memory_labels))
    another_label = torch.cat([label + 1, memory_labels])
    assert loss(anchor, label, with_copy[0], another_label) > loss(anchor, label, *with_copy)


def test_single_precision_agrees_with_double(name):
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.rand(300, 32, generator=generator, dtype=torch.float64)
    labels = torch.arange(300) % 7
    value, gradient = value_and_gradient(LOSSES[name](), embeddings, labels)
    single = value_and_gradient(LOSSES[name](), embeddings.float(), labels)
    assert_close(single[0].double(), value, rtol=1e-4, atol=0)
    difference = (single[1].double() - gradient).norm()
    assert difference < 2e-3 * gradient.norm()


def test_autocast_does_not_affect_the_lists(name):
    embeddings, labels = torch.rand(40, 64, generator=torch.manual_seed(0)), torch.arange(40) % 4
    expected = value_and_gradient(LOSSES[name](), embeddings, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        autocasted = value_and_gradient(LOSSES[name](), embeddings, labels)
    assert_close(autocasted, expected)


def test_half_precision_embeddings_are_scored_in_float32(name):
    embeddings, labels = torch.rand(20, 16, generator=torch.manual_seed(0)), torch.arange(20) % 4
    value, gradient = value_and_gradient(LOSSES[name](), embeddings.bfloat16(), labels)
    assert gradient.dtype == torch.bfloat16
    assert_close(value, LOSSES[name]()(embeddings.bfloat16().float(), labels))


@pytest.mark.parametrize("many_labels", [False, True])
def test_the_loss_does_not_depend_on_the_order_of_the_batch(name, many_labels):
    embeddings, labels, _, _ = batch_with_memory(many_labels=many_labels)
    order = torch.tensor([4, 0, 3, 1, 7, 2, 6, 5])
    value, gradient = value_and_gradient(LOSSES[name](), embeddings, labels)
    shuffled = value_and_gradient(LOSSES[name](), embeddings[order], labels[order])
    assert_close(shuffled, (value, gradient[order]), rtol=1e-9, atol=1e-12)


def test_descending_the_gradient_lowers_the_loss(name):
    embeddings, labels, memory, memory_labels = batch_with_memory(many_labels=True)
    others = labels, memory[3:], memory_labels[3:]  # no copies: they would stay where they are
    value, gradient = value_and_gradient(LOSSES[name](), embeddings, *others)
    moved = (embeddings.detach() - 1e-4 * gradient / gradient.norm()).clamp(0, 1)
    assert LOSSES[name]()(moved, *others) < value


def test_invalid_inputs_are_refused_with_the_reason(name):
    loss, labels = LOSSES[name](), torch.arange(4)
    with pytest.raises(InputError, match="got 3 labels for 4 embeddings"):
        loss(torch.rand(4, 8), torch.arange(3))
    with pytest.raises(InputError, match=r"must lie in \[0, 1\]"):
        loss(torch.rand(4, 8) + 1, labels)
    with pytest.raises(InputError, match="needs both ref_emb and ref_labels"):
        loss(torch.rand(4, 8), labels, torch.rand(3, 8))
    with pytest.raises(InputError, match="9 bits and the batch 8"):
        loss(torch.rand(4, 8), labels, torch.rand(3, 9), torch.arange(3))
