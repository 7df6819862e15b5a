import pytest
import torch

from orbithash.errors import InputError
from orbithash.networks import FeatureHead, embed


@pytest.mark.parametrize("hidden", [0, 8])
def test_embeddings_lie_in_0_to_1(hidden):
    head = FeatureHead(6, 4, hidden=hidden)
    embeddings = embed(head, 100 * torch.randn(30, 6))
    assert embeddings.shape == (30, 4)
    assert (embeddings >= 0).all()
    assert (embeddings <= 1).all()


def test_standardised_features_have_mean_0_and_deviation_1():
    features = 5 + 3 * torch.randn(200, 6)
    head = FeatureHead(6, 4)
    head.standardise(features)
    scaled = (features - head.center) * head.scale
    assert scaled.mean().abs() < 1e-4
    assert (scaled.std() - 1).abs() < 0.01


def test_features_that_are_all_the_same_give_no_nan():
    head = FeatureHead(6, 4)
    head.standardise(torch.ones(5, 6))
    assert embed(head, torch.ones(5, 6)).isfinite().all()


@pytest.mark.parametrize("wrong", [{"hidden": -1}, {"dropout": 1.0}])
def test_heads_that_cannot_be_are_refused(wrong):
    with pytest.raises(InputError):
        FeatureHead(6, 4, **wrong)
