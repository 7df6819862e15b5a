import itertools

import pytest
import torch

from loss_batches import assert_same_value_and_gradient, random_batch
from orbithash.errors import InputError
from orbithash.losses import LOSSES


def literal_loss(embeddings, related, margin, alpha):
    """Equation 5 of the paper, pair by pair, divided by the number of pairs."""
    b = 2 * embeddings - 1
    terms = []
    for i, j in itertools.combinations(range(len(b)), 2):
        distance = ((b[i] - b[j]) ** 2).sum()
        term = distance / 2 if related[i][j] else (margin - distance).clamp_min(0) / 2
        terms.append(term + alpha * sum((x.abs() - 1).abs().sum() for x in (b[i], b[j])))
    return sum(terms) / len(terms)


@pytest.mark.parametrize("many_labels", [False, True])
@pytest.mark.parametrize(("margin", "alpha"), [(None, 0.01), (4.0, 0.5), (0.0, 0.0)])
def test_loss_and_gradient_equal_the_literal_loop(many_labels, margin, alpha):
    embeddings, labels, related = random_batch(many_labels=many_labels)
    ours = LOSSES["dsh"](margin=margin, alpha=alpha)(embeddings, labels)
    theirs = literal_loss(embeddings, related, 10 if margin is None else margin, alpha)
    assert_same_value_and_gradient(ours, theirs, embeddings)


def test_gradcheck_passes():
    embeddings, labels, _ = random_batch()
    torch.autograd.gradcheck(lambda e: LOSSES["dsh"](alpha=0.1)(e, labels), embeddings)


@pytest.mark.parametrize("name", ["dsh", "dpsh", "hashnet"])
@pytest.mark.parametrize("n", [0, 1])
def test_a_batch_without_pairs_gives_a_finite_loss(name, n):
    embeddings = torch.rand(n, 8, requires_grad=True)
    value = LOSSES[name]()(embeddings, torch.zeros(n, dtype=torch.int64))
    value.backward()
    assert value.isfinite()
    assert embeddings.grad.isfinite().all()


@pytest.mark.parametrize("options", [{"margin": -1.0}, {"alpha": -0.1}])
def test_invalid_options_are_refused(options):
    with pytest.raises(InputError):
        LOSSES["dsh"](**options)
