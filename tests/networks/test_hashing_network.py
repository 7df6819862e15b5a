import pytest
import torch
from torch import nn

from orbithash.errors import InputError
from orbithash.networks import BACKBONES, HashingNetwork, embed

# (channels, height, width) of the smallest images that each backbone accepts.
SMALLEST = {"small-cnn": (1, 8, 8), "googlenet": (3, 32, 32), "efficientnet-lite0": (3, 32, 32)}


@pytest.mark.parametrize("backbone", SMALLEST)
@pytest.mark.parametrize("n_bits", [4, 13, 64])
def test_embeddings_are_in_0_to_1_with_one_column_per_bit(backbone, n_bits):
    images = torch.randn(5, *SMALLEST[backbone]) * 100
    embeddings = HashingNetwork(BACKBONES[backbone](), n_bits)(images)
    assert embeddings.shape == (5, n_bits)
    assert ((embeddings >= 0) & (embeddings <= 1)).all()


def test_gradients_reach_the_first_layer():
    network = HashingNetwork(BACKBONES["small-cnn"](), 8)
    network(torch.rand(4, 1, 8, 8)).sum().backward()
    first = next(network.parameters())
    assert first.grad is not None
    assert first.grad.abs().sum() > 0


def test_the_embedding_of_an_image_does_not_depend_on_the_batch():
    network = HashingNetwork(BACKBONES["small-cnn"](), 8)
    images = torch.rand(7, 1, 8, 8)
    one_by_one = embed(network, images, batch_size=1)
    torch.testing.assert_close(embed(network, images, batch_size=3), one_by_one)


def test_embedding_leaves_the_network_in_training_mode():
    network = HashingNetwork(BACKBONES["small-cnn"](), 8).train()
    embed(network, torch.rand(2, 1, 8, 8))
    assert network.training


def test_a_backbone_without_n_features_is_refused():
    with pytest.raises(InputError, match="Flatten has no attribute n_features"):
        HashingNetwork(nn.Flatten(), 8)


def test_the_head_may_have_a_hidden_layer():
    network = HashingNetwork(BACKBONES["small-cnn"](), 8, hidden=16)
    images = torch.rand(5, 1, 8, 8)
    features = network.eval().backbone(images)
    torch.testing.assert_close(network(images), network.head(features))
    assert network.head.hidden_layers[0].out_features == 16
