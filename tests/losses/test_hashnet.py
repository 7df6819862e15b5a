import itertools
import math

import pytest
import torch

from loss_batches import assert_same_value_and_gradient, random_batch
from orbithash.errors import InputError
from orbithash.losses import LOSSES


def literal_loss(embeddings, related, alpha, beta):
    """Pair by pair; related and unrelated pairs have equal total weight."""
    z = torch.atanh(2 * embeddings - 1)
    g = torch.tanh(beta * z)
    kinds = {True: [], False: []}
    for i, j in itertools.combinations(range(len(g)), 2):
        logit = alpha * (g[i] * g[j]).sum()
        loss = (1 + logit.exp()).log() - int(related[i][j]) * logit
        kinds[related[i][j]].append(loss)
    return sum(sum(losses) / max(1, len(losses)) for losses in kinds.values()) / 2


@pytest.mark.parametrize("many_labels", [False, True])
def test_loss_and_gradient_equal_the_literal_loop_while_beta_grows(many_labels):
    embeddings, labels, related = random_batch(many_labels=many_labels)
    loss = LOSSES["hashnet"](growth=0.5)
    for step in range(3):
        ours = loss(embeddings, labels)
        theirs = literal_loss(embeddings, related, 10 / 5, math.sqrt(1 + 0.5 * step))
        assert_same_value_and_gradient(ours, theirs, embeddings)


def test_beta_is_constant_in_evaluation_mode():
    embeddings, labels, _ = random_batch()
    loss = LOSSES["hashnet"](growth=0.5).eval()
    assert loss(embeddings, labels) == loss(embeddings, labels)


def test_gradcheck_passes():
    embeddings, labels, _ = random_batch()
    loss = LOSSES["hashnet"]().eval()
    torch.autograd.gradcheck(lambda e: loss(e, labels), embeddings)


def test_embeddings_at_0_and_1_give_a_finite_gradient():
    embeddings = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], requires_grad=True)
    LOSSES["hashnet"]()(embeddings, torch.tensor([0, 0, 1])).backward()
    assert embeddings.grad.isfinite().all()


@pytest.mark.parametrize("options", [{"alpha": 0.0}, {"growth": -1.0}])
def test_invalid_options_are_refused(options):
    with pytest.raises(InputError):
        LOSSES["hashnet"](**options)
