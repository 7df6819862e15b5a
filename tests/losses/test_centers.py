import pytest
import torch

from orbithash.errors import InputError
from orbithash.losses import LOSSES
from orbithash.losses.centers import hash_centers


def test_hadamard_codes_differ_in_half_of_their_bits_or_in_all():
    centers = hash_centers(20, 16, seed=0)
    inner = centers @ centers.T
    inner.fill_diagonal_(0)
    assert set(inner.unique().tolist()) <= {0.0, -16.0}


@pytest.mark.parametrize(("n_classes", "n_bits"), [(10, 12), (200, 16)])
def test_random_codes_are_plus_or_minus_1_and_depend_on_the_seed(n_classes, n_bits):
    first, again, other = (hash_centers(n_classes, n_bits, seed=seed) for seed in (0, 0, 1))
    assert first.shape == (n_classes, n_bits)
    assert (first.abs() == 1).all()
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("name", ["csq", "orthohash"])
def test_labels_of_unknown_classes_are_refused(name):
    loss = LOSSES[name](n_classes=3, n_bits=4)
    with pytest.raises(InputError, match="3 classes, numbered from 0"):
        loss(torch.rand(2, 4), torch.tensor([0, 3]))
    with pytest.raises(InputError, match="labels of 5 classes"):
        loss(torch.rand(2, 4), torch.ones(2, 5))


@pytest.mark.parametrize("name", ["csq", "orthohash"])
def test_images_without_labels_are_ignored(name):
    loss = LOSSES[name](n_classes=3, n_bits=4)
    embeddings = torch.rand(3, 4)
    labels = torch.tensor([[1, 0, 0], [0, 0, 0], [0, 1, 1]])
    labelled = torch.tensor([0, 2])
    assert loss(embeddings, labels) == loss(embeddings[labelled], labels[labelled])
    assert loss(embeddings[1:2], labels[1:2]) == 0
