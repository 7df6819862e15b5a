from dataclasses import replace

import numpy as np
import torch

from coloured_images import coloured
from feature_files import clouds
from orbithash.data import LabelledFeatures, Split, Views
from orbithash.encoders.runs.fingerprints import (
    changed_settings,
    data_digest,
    recorded_weights,
    weights_digest,
)
from orbithash.networks import SmallCNN


def features(**changes) -> LabelledFeatures:
    made = clouds()
    split = Split(made["train"], made["query"], made["database"])
    return replace(LabelledFeatures(made["features"], made["labels"], split), **changes)


def test_features_labels_split_and_views_change_the_digest():
    data = features()
    split = data.split
    others = [
        replace(data, features=data.features + 1),
        replace(data, labels=data.labels[::-1].copy()),
        replace(data, split=replace(split, train=split.train[1:])),
        replace(data, split=replace(split, query=split.query[1:])),
        replace(data, split=replace(split, database=split.database[1:])),
        replace(data, split=Split(split.train[1:], validation=split.train[:1])),
        replace(data, split=Split(split.train[1:])),
        replace(data, views=Views(data.features[:1], np.array([0]))),
    ]
    digests = {data_digest(each) for each in (data, *others)}
    assert len(digests) == 1 + len(others)
    assert data_digest(features()) == data_digest(data)


def test_files_labels_and_split_change_the_digest_of_images_but_not_their_place(tmp_path):
    images = coloured(tmp_path / "images")
    digest = data_digest(images)
    images.root.rename(tmp_path / "moved")
    moved = replace(images, root=tmp_path / "moved")
    assert data_digest(moved) == digest
    split = moved.split
    held_out = Split(split.train[1:], split.query, split.database, split.train[:1])
    others = [
        replace(moved, labels=moved.labels[::-1].copy()),
        replace(moved, split=replace(split, train=split.train[1:])),
        replace(moved, split=held_out),
    ]
    digests = {digest, *(data_digest(each) for each in others)}
    moved.file(0).write_text("changed")
    digests.add(data_digest(moved))
    moved.file(0).unlink()
    digests.add(data_digest(moved))
    assert len(digests) == 6


def test_the_digest_of_weights_depends_on_their_values_alone():
    torch.manual_seed(0)
    network = SmallCNN(channels=3)
    digest = weights_digest(network)
    network.to(memory_format=torch.channels_last)
    assert weights_digest(network) == digest
    with torch.no_grad():
        next(network.parameters())[0, 0, 0, 0] += 1
    assert weights_digest(network) != digest


def test_settings_that_differ_are_named_in_order():
    before = '{"seed": 1, "bits": 8, "margin": 2, "runtime": "torch"}'
    now = '{"bits": 16, "gamma": 2, "runtime": "onnxruntime", "margin": 2}'
    assert changed_settings(before, now, ignored={"runtime"}) == "bits and gamma and seed"
    assert changed_settings("by hand", '{"bits": 8}') == "bits"


def test_the_weights_that_extracted_features_are_known_if_they_are_recorded():
    assert recorded_weights(features(made_with='{"weights": "abc"}')) == "abc"
    for note in ("", "by hand", "[1]", "{}", '{"weights": 3}'):
        assert recorded_weights(features(made_with=note)) is None
