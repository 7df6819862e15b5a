import pytest
import torch
from torch.testing import assert_close

from literal_lists import batch_with_memory
from literal_loss import literal_loss
from orbithash.errors import InputError
from orbithash.losses import LOSSES

PAPER = {"gamma": 2.0, "weighting": "ap", "ties": "distance", "reduction": "active"}


def proxy_loss(*, n_classes=3, n_bits=6, **options):
    return LOSSES["order-aware-proxies"](n_classes=n_classes, n_bits=n_bits, **options).double()


@pytest.mark.parametrize("many_labels", [False, True])
@pytest.mark.parametrize("with_memory", [False, True])
def test_loss_and_gradients_equal_the_literal_loop_over_lists_with_proxies(
    many_labels, with_memory
):
    embeddings, labels, memory, memory_labels = batch_with_memory(many_labels=many_labels)
    loss = proxy_loss(n_classes=4)
    items = loss.logits.sigmoid()
    item_labels = torch.eye(4, dtype=torch.int64) if many_labels else torch.arange(4)
    given = {}
    if with_memory:
        given = {"ref_emb": memory, "ref_labels": memory_labels}
        items, item_labels = torch.cat([items, memory]), torch.cat([item_labels, memory_labels])
    ours = loss(embeddings, labels, **given)
    theirs = literal_loss(
        embeddings, labels, memory=items, memory_labels=item_labels, margin=6 / 8, **PAPER
    )
    gradients = [torch.autograd.grad(value, (embeddings, loss.logits)) for value in (ours, theirs)]
    assert_close(ours, theirs, rtol=0, atol=1e-10)
    assert_close(*gradients, rtol=0, atol=1e-10)
    assert all((gradient != 0).any() for gradient in gradients[0])
    assert loss.n_triplets > 0
    assert 0 < loss.active_share <= 1


def test_gradcheck_passes_for_batch_and_proxies():
    embeddings, labels, _, _ = batch_with_memory()
    loss = proxy_loss(margin=0.7)

    def with_proxies(embeddings, logits):
        return torch.func.functional_call(loss, {"logits": logits}, (embeddings, labels))

    torch.autograd.gradcheck(with_proxies, (embeddings, loss.logits))


def test_proxies_depend_on_the_seed_and_are_spread_over_both_bits():
    first, again, other = (proxy_loss(n_classes=50, n_bits=64, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.logits, again.logits)
    assert not torch.equal(first.logits, other.logits)
    assert float(first.logits.detach().std()) == pytest.approx(2, abs=0.1)


def test_a_batch_of_one_image_learns_from_the_proxies():
    loss = proxy_loss()
    value = loss(torch.full((1, 6), 0.5, dtype=torch.float64), torch.tensor([2], dtype=torch.int8))
    value.backward()
    assert value > 0
    assert (loss.logits.grad != 0).any()


@pytest.mark.parametrize("labels", [torch.zeros(0, dtype=torch.int64), torch.zeros(4, 3)])
def test_without_labels_the_loss_and_its_gradients_are_zero(labels):
    embeddings = torch.rand(len(labels), 6, requires_grad=True)
    loss = proxy_loss()
    value = loss(embeddings, labels)
    value.backward()
    assert value == 0
    assert (embeddings.grad == 0).all()
    assert (loss.logits.grad == 0).all()


def test_labels_of_unknown_classes_and_invalid_options_are_refused():
    with pytest.raises(InputError, match="3 classes, numbered from 0"):
        proxy_loss()(torch.rand(2, 6), torch.tensor([0, 3]))
    with pytest.raises(InputError, match="labels of 5 classes"):
        proxy_loss()(torch.rand(2, 6), torch.ones(2, 5))
    with pytest.raises(InputError, match="n_classes=0"):
        proxy_loss(n_classes=0)
    with pytest.raises(InputError, match="gamma"):
        proxy_loss(gamma=0.5)
