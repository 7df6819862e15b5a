import math

import pytest
import torch

from loss_batches import assert_same_value_and_gradient, random_batch
from orbithash.errors import InputError
from orbithash.losses import LOSSES
from orbithash.losses.central_similarity import hash_centers


def literal_loss(embeddings, labels, centers, quantization):
    """Bit by bit: cross-entropy with the majority of the classes' codes, and log cosh."""
    total, count = embeddings.sum() * 0, 0
    for row, label in zip(embeddings, labels, strict=True):
        classes = [int(label)] if label.ndim == 0 else label.nonzero().flatten().tolist()
        for bit in range(len(row) if classes else 0):
            vote = sum(float(centers[c, bit]) for c in classes) or float(centers[classes[0], bit])
            h = row[bit]
            total = total - (h.log() if vote > 0 else (1 - h).log())
            total = total + quantization * ((2 * h - 1).abs() - 1).cosh().log()
            count += 1
    return total / count


def nearest_pair(codes):
    codes = codes.numpy() > 0
    return min(int((code != codes[i + 1 :]).sum(axis=1).min()) for i, code in enumerate(codes[:-1]))


@pytest.mark.parametrize("many_labels", [False, True])
def test_loss_and_gradient_equal_the_literal_loop(many_labels):
    embeddings, labels, _ = random_batch(many_labels=many_labels, bits=8)
    loss = LOSSES["csq"](n_classes=3, n_bits=8, quantization=0.3)
    theirs = literal_loss(embeddings, labels, hash_centers(3, 8, seed=0), 0.3)
    assert_same_value_and_gradient(loss(embeddings, labels), theirs, embeddings)


def test_gradcheck_passes():
    embeddings, labels, _ = random_batch(bits=8)
    loss = LOSSES["csq"](n_classes=3, n_bits=8)
    torch.autograd.gradcheck(lambda e: loss(e, labels), embeddings)


def test_the_codes_of_the_classes_have_zero_loss():
    centers = hash_centers(3, 8, seed=0)
    loss = LOSSES["csq"](n_classes=3, n_bits=8)
    assert math.isclose(loss((centers + 1) / 2, torch.arange(3)), 0, abs_tol=1e-6)


def test_a_negative_quantization_weight_is_refused():
    with pytest.raises(InputError, match="quantization"):
        LOSSES["csq"](n_classes=3, n_bits=8, quantization=-1.0)


def test_hadamard_codes_differ_in_half_of_their_bits_or_in_all():
    centers = hash_centers(20, 16, seed=0)
    inner = centers @ centers.T
    inner.fill_diagonal_(0)
    assert set(inner.unique().tolist()) <= {0.0, -16.0}


@pytest.mark.parametrize(("n_classes", "n_bits"), [(16, 24), (20, 48), (2, 33)])
def test_codes_of_few_classes_differ_in_half_of_any_number_of_bits(n_classes, n_bits):
    assert nearest_pair(hash_centers(n_classes, n_bits, seed=0)) >= n_bits // 2


@pytest.mark.parametrize(
    ("n_classes", "n_bits", "differ"),
    [
        # 16 bits: no 257 codes differ in 6 of them. 64 bits: half would be 32.
        (200, 16, 6),
        (200, 32, 12),
        (200, 48, 18),
        (200, 64, 28),
        (1000, 64, 28),
        (10, 12, 5),
        (60, 25, 8),
    ],
)
def test_codes_of_many_classes_are_far_apart_and_depend_on_the_seed(n_classes, n_bits, differ):
    first, again, other = (hash_centers(n_classes, n_bits, seed=seed) for seed in (0, 0, 1))
    assert first.shape == (n_classes, n_bits)
    assert (first.abs() == 1).all()
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    drawn = torch.randint(2, (n_classes, n_bits), generator=torch.manual_seed(0)) * 2.0 - 1
    for codes in (first, other):
        assert nearest_pair(codes) >= differ > nearest_pair(drawn)


@pytest.mark.parametrize("name", ["csq", "orthohash"])
def test_the_smallest_distance_of_two_classes_is_recorded(name):
    for n_classes, n_bits in ((200, 16), (5, 8), (3, 2), (20, 4)):
        loss = LOSSES[name](n_classes=n_classes, n_bits=n_bits)
        assert loss.min_distance == nearest_pair(loss.centers)
    assert LOSSES[name](n_classes=1, n_bits=8).min_distance == 8


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
