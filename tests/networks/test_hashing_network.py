import pytest
import torch
from torch import nn

from orbithash.errors import InputError
from orbithash.networks import BACKBONES, FeatureHead, HashingNetwork, embed
from orbithash.networks.hashing_network import LOGIT_STD

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


@pytest.mark.parametrize("hidden", [0, 8])
def test_embeddings_of_a_head_are_in_0_to_1(hidden):
    head = FeatureHead(6, 4, hidden=hidden)
    embeddings = embed(head, 100 * torch.randn(30, 6))
    assert embeddings.shape == (30, 4)
    assert (embeddings >= 0).all()
    assert (embeddings <= 1).all()


def test_standardised_features_have_mean_0_and_deviation_1():
    features = 5 + 3 * torch.randn(200, 6)
    head = FeatureHead(6, 4)
    head.fit_start(features)
    scaled = (features - head.center) * head.scale
    assert scaled.mean().abs() < 1e-4
    assert (scaled.std() - 1).abs() < 0.01


def test_identical_features_give_no_nan():
    head = FeatureHead(6, 4)
    head.fit_start(torch.ones(5, 6))
    assert embed(head, torch.ones(5, 6)).isfinite().all()


@pytest.mark.parametrize("options", [{"hidden": -1}, {"dropout": 1.0}])
def test_invalid_options_of_a_head_are_refused(options):
    with pytest.raises(InputError):
        FeatureHead(6, 4, **options)


@pytest.mark.parametrize("hidden", [0, 32])
def test_initial_logits_of_every_bit_are_centred_with_equal_deviation(hidden):
    features = torch.randn(500, 6) * 40 + 7
    head = FeatureHead(6, 16, hidden=hidden)
    head.fit_start(features)
    logits = head.eval().logits(features)
    torch.testing.assert_close(logits.mean(dim=0), torch.zeros(16), atol=1e-4, rtol=0)
    torch.testing.assert_close(logits.std(dim=0, correction=0), torch.full((16,), LOGIT_STD))
    assert head.training is False


def test_without_spread_the_initial_weights_are_torchs():
    torch.manual_seed(0)
    head = FeatureHead(6, 4, hidden=0)
    weights = head.hash_layer.weight.clone()
    head.fit_start(torch.randn(50, 6), spread=False)
    assert torch.equal(head.hash_layer.weight, weights)


def test_large_inputs_are_subsampled_for_the_start(monkeypatch):
    features = torch.randn(100, 6)
    subsampled, complete = (start_of(rows) for rows in (features[::4], features))
    monkeypatch.setattr("orbithash.networks.hashing_network.MAX_ROWS_TO_FIT", 30)
    assert torch.equal(start_of(features), subsampled)
    assert not torch.equal(start_of(features), complete)


def start_of(features):
    torch.manual_seed(0)
    head = FeatureHead(6, 4, hidden=8)
    head.fit_start(features)
    return torch.cat([weight.flatten() for weight in head.state_dict().values()])
