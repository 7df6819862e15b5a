import pytest
import torch

from orbithash.errors import InputError
from orbithash.networks import FeatureHead, embed
from orbithash.networks.feature_head import LOGIT_STD


@pytest.mark.parametrize("hidden", [0, 8])
def test_embeddings_are_in_0_to_1(hidden):
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
def test_invalid_options_are_refused(options):
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
    monkeypatch.setattr("orbithash.networks.feature_head.MAX_ROWS_TO_FIT", 30)
    assert torch.equal(start_of(features), subsampled)
    assert not torch.equal(start_of(features), complete)


def start_of(features):
    torch.manual_seed(0)
    head = FeatureHead(6, 4, hidden=8)
    head.fit_start(features)
    return torch.cat([weight.flatten() for weight in head.state_dict().values()])
