"""The head with class codes: its formula, its start, and what it is for."""

import numpy as np
import pytest
import torch
from torch.nn import functional

import orbithash
from orbithash.errors import InputError
from orbithash.networks import ClassCodeHead, power_normalized


def clouds(n_per_class=24, n_classes=6, d=20, seed=0):
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(n_classes, d)) * 1.5
    labels = np.repeat(np.arange(n_classes), n_per_class)
    return (means[labels] + rng.normal(size=(len(labels), d))).astype(np.float32), labels


@pytest.fixture(scope="module")
def encoder():
    return orbithash.train(clouds(), bits=16, head="class-codes", epochs=15)


def test_logits_are_the_linear_code_plus_the_expected_class_code():
    torch.manual_seed(0)
    head = ClassCodeHead(5, 8, 3).eval()
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    features = torch.randn(4, 5)
    for row, got in zip(features, head.logits(features), strict=True):
        x = row.sign() * row.abs().sqrt()
        x = x / x.norm() - head.center
        scores = [
            head.sharpness
            * (functional.cosine_similarity(head.whitening @ x, prototype, dim=0) - head.threshold)
            for prototype in head.prototypes
        ]
        total = 1 + sum(score.exp() for score in scores)
        expected = head.hash_layer(x)
        for score, code in zip(scores, head.class_codes, strict=True):
            expected = expected + score.exp() / total * code
        torch.testing.assert_close(got, expected)


def test_about_a_third_of_the_training_steps_leave_the_class_codes_out():
    head = ClassCodeHead(5, 8, 3).train()
    torch.nn.init.ones_(head.class_codes)
    torch.nn.init.ones_(head.prototypes)
    features = torch.ones(1, 5)
    linear = head.hash_layer(head.normalized(features))
    left_out = sum(torch.equal(head.logits(features), linear) for _ in range(100))
    assert 25 <= left_out <= 35
    assert not torch.equal(head.eval().logits(features), linear)


def test_the_first_bits_of_a_head_are_a_head_of_their_own():
    head = ClassCodeHead(5, 8, 3).eval()
    torch.nn.init.normal_(head.class_codes)
    features = torch.randn(4, 5)
    torch.testing.assert_close(head.prefix(4)(features), head(features)[:, :4])


def test_features_of_any_sign_and_scale_have_length_one():
    features = torch.tensor([[4.0, -9.0], [0.0, 0.0]])
    expected = torch.tensor([[2.0, -3.0], [0.0, 0.0]]) / torch.tensor([[13**0.5], [1.0]])
    torch.testing.assert_close(power_normalized(features), expected)


def test_training_names_the_classes_and_keeps_distinct_codes(encoder):
    features, labels = clouds(seed=0)
    scores = orbithash.evaluate(encoder, (features, labels))
    assert scores.map > 0.95


def test_a_saved_run_encodes_the_same(encoder, tmp_path):
    features, _ = clouds()
    encoder.save(tmp_path / "run")
    loaded = orbithash.load(tmp_path / "run")
    np.testing.assert_array_equal(loaded.encode(features), encoder.encode(features))
    assert encoder.training.record.settings["head"] == "class-codes"


def test_a_run_starts_from_one_with_the_same_classes(encoder):
    continued = orbithash.train(clouds(), bits=16, init=encoder, epochs=1)
    assert continued.head_sizes == encoder.head_sizes == {"n_bits": 16, "n_classes": 6}
    with pytest.raises(InputError, match="n_classes=6, but here it is 5"):
        orbithash.train(clouds(n_classes=5), bits=16, init=encoder, epochs=1)
    with pytest.raises(InputError, match="head of another kind"):
        orbithash.train(clouds(), bits=16, init=encoder, epochs=1, head="layers")


def test_nested_codes_have_class_codes_too():
    nested = orbithash.train(clouds(), bits=16, nested=(8,), head="class-codes", epochs=2)
    features, _ = clouds()
    np.testing.assert_array_equal(nested.prefix(8).encode(features), nested.encode(features)[:, :1])


def test_several_labels_need_layers():
    features, labels = clouds()
    table = np.eye(6, dtype=bool)[labels]
    with pytest.raises(InputError, match="images with one label each"):
        orbithash.train((features, table), bits=16, head="class-codes", epochs=1)
    with pytest.raises(InputError, match="images with one label each"):
        orbithash.train(features, bits=16, head="class-codes", labels="none", epochs=1)


def test_unlabelled_images_have_no_class_code(tmp_path):
    features, labels = clouds()
    np.savez(tmp_path / "more.npz", features=features[::3])
    encoder = orbithash.train(
        (features, labels),
        bits=16,
        head="class-codes",
        look=0.3,
        unlabelled=tmp_path / "more.npz",
        epochs=1,
    )
    assert encoder.head_sizes["n_classes"] == 6


def test_an_unknown_head_is_refused():
    with pytest.raises(InputError, match="must be layers or class-codes"):
        orbithash.train(clouds(), bits=16, head="transformer", epochs=1)
