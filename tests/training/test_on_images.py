from dataclasses import replace

import numpy as np
import pytest
import torch

import orbithash
from coloured_images import coloured
from orbithash.data import hold_out
from orbithash.encoders import FeatureEncoder
from orbithash.errors import InputError
from orbithash.evaluation import evaluate
from orbithash.networks import FeatureHead, SmallCNN, load_photo_backbone
from orbithash.training import (
    IMAGE_PRESETS,
    Hooks,
    Interrupted,
    as_method,
    seeded,
    train_on_images,
)

QUICK = replace(
    IMAGE_PRESETS["default"], epochs=3, batch_size=12, learning_rate=3e-3, validate_every=1
)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return coloured(tmp_path_factory.mktemp("colours"))


pytestmark = pytest.mark.usefixtures("one_thread")


def learn(images, settings=QUICK, method="order-aware", **options):
    with seeded(0):
        backbone = load_photo_backbone("small-cnn", to_train=True)
    return train_on_images(
        images,
        backbone,
        as_method(method),
        16,
        settings,
        **{"n_workers": 0, **options},
    )


def same_weights(left, right) -> bool:
    theirs = right.model()[1]
    return all(np.array_equal(weight, theirs[name]) for name, weight in left.model()[1].items())


def test_training_learns_to_tell_colours_apart(images):
    before, _ = learn(images, replace(QUICK, epochs=1, learning_rate=1e-12))
    after, _ = learn(images, replace(QUICK, epochs=10))
    untrained, trained = (evaluate(encoder, images).map for encoder in (before, after))
    assert trained > max(0.8, untrained + 0.1)


def test_a_new_head_is_fitted_to_what_the_backbone_outputs(images):
    encoder, _ = learn(images, replace(QUICK, epochs=1, learning_rate=1e-12))
    head = encoder.head.network
    drawn = FeatureHead(SmallCNN.n_features, 16, hidden=0)
    assert head.center.abs().sum() > 0
    assert head.hash_layer.weight.norm() > 2 * drawn.hash_layer.weight.norm()


def test_the_number_of_workers_changes_nothing(images):
    alone, _ = learn(images)
    assert same_weights(alone, learn(images, n_workers=1)[0])
    assert same_weights(alone, learn(images, n_workers=3)[0])
    assert not same_weights(alone, learn(images, seed=1)[0])


def test_queries_are_never_looked_at(images, tmp_path):
    blind = coloured(tmp_path)
    for row in blind.split.query.tolist():
        blind.file(row).write_text("not to be read")
    assert same_weights(learn(images)[0], learn(blind)[0])


def test_a_file_that_cannot_be_read_is_replaced_and_told(tmp_path):
    images = coloured(tmp_path)
    broken = images.split.train[[1, 7, 8]].tolist()
    for row in broken:
        images.file(row).write_text("no image")
    told = {}
    trained, history = learn(images, hooks=Hooks(unreadable=told.__setitem__))
    assert told == {images.paths[row]: "not an image of a known format" for row in broken}
    assert len(history) == 3
    # As if they had never been there, only the stand-ins are others' turn: still deterministic.
    assert same_weights(trained, learn(images, n_workers=2)[0])


def test_a_class_without_any_readable_image_does_not_stop_the_run(tmp_path):
    images = coloured(tmp_path)
    for row in np.flatnonzero(images.labels == 2).tolist():
        images.file(row).unlink()
    assert len(learn(images)[1]) == 3


def test_no_readable_image_at_all_is_said_plainly(tmp_path):
    images = coloured(tmp_path)
    for row in range(len(images)):
        images.file(row).unlink()
    with pytest.raises(InputError, match="hardly any of the"):
        learn(images)


def test_the_new_head_learns_faster_and_biases_do_not_decay(images):
    still = replace(QUICK, epochs=1, learning_rate=1e-4, weight_decay=0.0, warmup=0.0, clip=0.0)
    start = learn(images, replace(still, learning_rate=1e-12))[0].head.network
    slow = learn(images, replace(still, new_layer_rate=1.0))[0].head.network
    fast = learn(images, replace(still, new_layer_rate=10.0))[0].head.network
    moved = [
        (head.hash_layer.weight - start.hash_layer.weight).abs().mean().item()
        for head in (slow, fast)
    ]
    assert moved[1] > 5 * moved[0]


def test_a_hasher_cannot_train_a_whole_network(images):
    with pytest.raises(InputError, match="itq is fitted to features and cannot train a network"):
        orbithash.train(images, 16, method="itq", backbone="small-cnn")


def test_a_run_to_start_from_must_fit_and_is_gone_on_from(images):
    plain, _ = learn(images, method="triplet")
    still = replace(QUICK, learning_rate=1e-12, epochs=1)
    hard, _ = learn(images, still, method="triplet-hard-negative", init=plain)
    # At no rate to speak of it is where it started, but for what normalisation has counted.
    torch.testing.assert_close(
        hard.head.network.hash_layer.weight, plain.head.network.hash_layer.weight
    )
    with pytest.raises(InputError, match="n_bits=16, but here it is 8"):
        train_on_images(
            images,
            load_photo_backbone("small-cnn", to_train=True),
            as_method("triplet"),
            8,
            QUICK,
            init=plain,
        )


def test_a_head_that_was_trained_on_features_is_gone_on_from(images):
    head = FeatureHead(SmallCNN.n_features, 16, hidden=8)
    still = replace(QUICK, learning_rate=1e-12, epochs=1, hidden=8)
    tuned = learn(images, still, init=FeatureEncoder(head))[0].head.network
    torch.testing.assert_close(tuned.state_dict(), head.state_dict())
    with pytest.raises(InputError, match="hidden=8, but here it is 0"):
        learn(images, replace(still, hidden=0), init=FeatureEncoder(head))


def test_torchs_own_generator_is_left_alone(images):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    learn(images, n_workers=1)
    assert torch.equal(torch.rand(3), expected)


def test_a_broken_file_outside_of_the_root_does_not_stop_validation(tmp_path):
    near = coloured(tmp_path / "images")
    images = replace(
        near, root=tmp_path / "elsewhere", paths=tuple(str(near.root / path) for path in near.paths)
    )
    for row in images.split.train[::6].tolist():
        images.file(row).write_text("no image")
    told = {}
    hooks = Hooks(unreadable=told.__setitem__)
    _, history = learn(images, replace(QUICK, epochs=1, validation=0.4), hooks=hooks)
    assert set(told) <= set(images.paths)
    assert history[0].validation_map is not None


def test_broken_files_alone_cannot_validate(tmp_path):
    images = coloured(tmp_path / "images")
    labels = images.labels[images.split.train]
    _, held_out = hold_out(labels, 0.1, seed=0)
    for row in images.split.train[held_out].tolist():
        images.file(row).write_text("no image")
    with pytest.raises(InputError, match="held out for validation can be read"):
        learn(images, replace(QUICK, epochs=1, validation=0.1))


@pytest.mark.parametrize("device", ["gpu", "cuda:77", "meta"])
def test_a_device_that_is_not_there_is_said_plainly(images, device):
    with pytest.raises(InputError, match=f"cannot run a network on '{device}' here"):
        orbithash.train(images, 16, backbone="small-cnn", device=device)


def test_a_runs_time_is_that_of_all_its_epochs(images, tmp_path):
    def train(**options):
        return orbithash.train(
            images, 16, backbone="small-cnn", out=tmp_path / "run", workers=0, epochs=3, **options
        )

    epochs = []
    stopped = Hooks(after_epoch=epochs.append, stopping=lambda: len(epochs) == 2)
    with pytest.raises(Interrupted):
        train(hooks=stopped)
    again = train(resume=True)
    assert again.history[:2] == tuple(epochs)
    assert again.training.seconds == sum(epoch.seconds for epoch in again.history) > 0
