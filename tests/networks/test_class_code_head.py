"""The head with class codes: its formula, its start, and what it is for."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

import orbithash
from orbithash.data import LabelledFeatures, Split, Views
from orbithash.errors import InputError
from orbithash.networks import ClassCodeHead, power_normalized
from orbithash.networks.class_code_head import left_out_cosines, resemblance, sharpness_of


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
    head = ClassCodeHead(5, 8, 3).train()
    torch.nn.init.normal_(head.class_codes)
    head.prototypes.copy_(functional.normalize(torch.randn(3, 5), dim=1))
    head.sharpness.fill_(9)
    features = torch.randn(4, 5)

    def by_hand(row, sharpness, factor):
        x = row.sign() * row.abs().sqrt()
        x = x / x.norm() - head.center
        scores = [
            sharpness * (functional.cosine_similarity(head.whitening @ x, prototype, dim=0) - 0.1)
            for prototype in head.prototypes
        ]
        total = 1 + sum(score.exp() for score in scores)
        logits = head.hash_layer(x)
        for score, code in zip(scores, head.class_codes, strict=True):
            logits = logits + factor * score.exp() / total * code
        return logits

    expected = torch.stack([by_hand(row, 9, 1) for row in features])
    torch.testing.assert_close(head.logits(features), expected)
    # New images resemble their class less than those that trained: both numbers make up for it.
    expected = torch.stack([by_hand(row, 9 * 1.25, 1.5) for row in features])
    torch.testing.assert_close(head.eval().logits(features), expected)


def test_training_changes_the_codes_and_not_what_an_image_resembles():
    data = clouds()
    heads = [
        orbithash.train(data, bits=16, head="class-codes", epochs=n).network.state_dict()
        for n in (1, 3)
    ]
    changed = {name for name in heads[0] if not torch.equal(heads[0][name], heads[1][name])}
    assert changed == {"hash_layer.weight", "hash_layer.bias", "class_codes"}


def test_an_image_is_compared_with_its_class_without_itself():
    directions = functional.normalize(torch.randn(5, 3, dtype=torch.float64), dim=1)
    labels = torch.tensor([0, 0, 1, 1, 1])
    cosines = left_out_cosines(directions, labels, 2)
    for i, j in itertools.product(range(5), range(2)):
        others = [k for k in range(5) if labels[k] == j and k != i]
        mean = functional.normalize(directions[others].sum(dim=0), dim=0)
        torch.testing.assert_close(cosines[i, j], directions[i] @ mean)


def test_the_sharpness_gives_the_wanted_mean_resemblance():
    torch.manual_seed(0)
    cosines = 2 * torch.rand(50, 7) - 1
    found = resemblance(cosines, sharpness_of(cosines))
    assert found.amax(dim=1).mean() == pytest.approx(0.7, abs=1e-3)
    assert found.sum(dim=1).max() < 1


def test_further_views_take_part_in_the_start():
    features, labels = clouds()
    rng = np.random.default_rng(1)
    split = Split(train=np.arange(len(labels)))
    views = Views(
        features[::2] + rng.normal(size=(72, 20)).astype(np.float32), np.arange(0, 144, 2)
    )
    data = LabelledFeatures(features, labels, split)
    plain, with_views = (
        orbithash.train(each, bits=16, head="class-codes", epochs=1).network
        for each in (data, replace(data, views=views))
    )
    assert not torch.allclose(plain.prototypes, with_views.prototypes, atol=1e-3)
    mean = power_normalized(torch.from_numpy(np.concatenate([features, views.features]))).mean(
        dim=0
    )
    torch.testing.assert_close(with_views.center, mean, atol=1e-5, rtol=0)


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
    with pytest.raises(InputError, match="must be layers or two-paths or class-codes"):
        orbithash.train(clouds(), bits=16, head="transformer", epochs=1)
