import itertools

import pytest
import torch

from loss_batches import assert_same_value_and_gradient, random_batch
from orbithash.errors import InputError
from orbithash.losses import LOSSES


def literal_loss(embeddings, related, eta):
    """Equation 3 of the paper, pair by pair and image by image, as means."""
    u = 2 * embeddings - 1
    likelihoods = []
    for i, j in itertools.combinations(range(len(u)), 2):
        theta = (u[i] * u[j]).sum() / 2
        likelihoods.append((1 + theta.exp()).log() - int(related[i][j]) * theta)
    quantization = [((row.sign().detach() - row) ** 2).sum() for row in u]
    return sum(likelihoods) / len(likelihoods) + eta * sum(quantization) / len(quantization)


@pytest.mark.parametrize("many_labels", [False, True])
@pytest.mark.parametrize("eta", [0.0, 0.3])
def test_loss_and_gradient_equal_the_literal_loop(many_labels, eta):
    embeddings, labels, related = random_batch(many_labels=many_labels)
    ours = LOSSES["dpsh"](eta=eta)(embeddings, labels)
    assert_same_value_and_gradient(ours, literal_loss(embeddings, related, eta), embeddings)


def test_gradcheck_passes():
    embeddings, labels, _ = random_batch()
    torch.autograd.gradcheck(lambda e: LOSSES["dpsh"]()(e, labels), embeddings)


def test_a_negative_quantization_weight_is_refused():
    with pytest.raises(InputError, match="eta"):
        LOSSES["dpsh"](eta=-1.0)
