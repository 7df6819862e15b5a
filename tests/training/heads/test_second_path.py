import numpy as np
import pytest
import torch
from onnxruntime import InferenceSession

import orbithash
from orbithash.metrics.scoring import evaluate_codes

SETTINGS = {"epochs": 3, "batch_size": 40, "hidden": 16}


def clustered(seed, *, classes=8, size=20, several_labels=False):
    """Images of classes whose features differ in 6 directions, among 30 that carry no class."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), size)
    centers = np.random.default_rng(0).standard_normal((classes, 6)) * 2
    noise = rng.standard_normal((len(labels), 30)) * 2
    features = np.hstack([centers[labels] + rng.standard_normal((len(labels), 6)), noise])
    if several_labels:
        labels = np.eye(classes, dtype=bool)[labels] | np.eye(classes, dtype=bool)[labels // 2]
    return features.astype(np.float32), labels


def two_paths(data, bits=16, **changes):
    return orbithash.train(data, bits, head="two-paths", seed=1, **SETTINGS, **changes)


def test_classes_that_did_not_train_are_found_better_with_the_second_path():
    features, labels = clustered(3)
    seen = labels < 4
    unseen, of_unseen = features[~seen], labels[~seen]

    def score(head):
        encoder = orbithash.train((features[seen], labels[seen]), 16, head=head, **SETTINGS)
        codes = encoder.encode(unseen)
        return evaluate_codes(codes, codes, of_unseen, of_unseen, n_bits=16, leave_one_out=True).map

    assert score("two-paths") > score("layers") + 0.02


def test_the_layers_are_the_same_as_without_the_second_path():
    data = clustered(4)
    both = two_paths(data).network.state_dict()
    layers = orbithash.train(data, 16, head="layers", seed=1, **SETTINGS).network.state_dict()
    assert both.keys() > layers.keys()
    assert all(torch.equal(both[name], layers[name]) for name in layers)


@pytest.mark.parametrize("several_labels", [False, True])
def test_a_saved_encoder_with_two_paths_gives_the_same_codes(tmp_path, several_labels):
    features, labels = clustered(5, several_labels=several_labels)
    encoder = two_paths((features, labels))
    encoder.save(tmp_path / "run")
    loaded = orbithash.load(tmp_path / "run")
    assert loaded.head_sizes["known_classes"] == (0 if several_labels else 8)
    np.testing.assert_array_equal(loaded.encode(features), encoder.encode(features))


def test_nested_codes_have_the_second_path_of_their_bits():
    features, labels = clustered(6)
    encoder = two_paths((features, labels), nested=(8,))
    np.testing.assert_allclose(
        encoder.prefix(8).embed(features), encoder.embed(features)[:, :8], atol=1e-6
    )


def test_training_continues_from_the_layers_of_a_head_with_two_paths():
    data = clustered(7)
    first = two_paths(data)
    for head in ("two-paths", "layers"):
        continued = orbithash.train(data, 16, head=head, init=first, **SETTINGS)
        assert ("known_classes" in continued.head_sizes) == (head == "two-paths")


@pytest.mark.slow
def test_an_exported_encoder_with_two_paths_gives_the_same_embeddings():
    features, labels = clustered(10)
    encoder = two_paths((features, labels))
    session = InferenceSession(encoder.to_onnx()[0])
    embeddings = session.run(["embeddings"], {"features": features})[0]
    np.testing.assert_allclose(embeddings, encoder.embed(features), atol=1e-5)


def test_features_that_are_all_equal_get_no_second_path():
    encoder = two_paths((np.ones((40, 6), np.float32), np.repeat([0, 1], 20)))
    assert "known_classes" not in encoder.head_sizes


def test_more_bits_than_features_and_images_are_possible():
    features, labels = clustered(8, classes=2, size=6)
    assert two_paths((features, labels), 64).encode(features).shape == (12, 8)
