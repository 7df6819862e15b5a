"""Training with losses that take a teacher's vectors beside the labels."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import orbithash
from coloured_images import coloured
from feature_files import clouds
from orbithash.data import ShuffledBatches
from orbithash.encoders.extraction.extract import training_features
from orbithash.errors import InputError
from orbithash.losses import CentralSimilarityLoss, LookLoss, OrderAwareTripletLoss
from orbithash.networks import SmallCNN, load_photo_backbone
from orbithash.training import (
    Batch,
    Hooks,
    Interrupted,
    TensorBatches,
    TrainingSettings,
    single_views,
    train_network,
)
from orbithash.training.batches import several_views
from orbithash.training.methods import as_method, run_identity, with_nested
from orbithash.training.state import Memory

QUICK = {"epochs": 3, "hidden": 16, "batch_size": 20}

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def arrays():
    made = clouds()
    return made["features"], made["labels"]


class Recorder(nn.Module):
    """A loss that keeps all that it is called with, also as the copy that is trained."""

    takes_teacher = True

    def __init__(self):
        super().__init__()
        self.seen = []

    def __deepcopy__(self, memo):
        return self

    def forward(
        self, embeddings, labels, ref_emb=None, ref_labels=None, teacher=None, ref_teacher=None
    ):
        self.seen.append((embeddings.detach(), ref_emb, teacher, ref_teacher))
        return embeddings.square().mean()


def look(weight=5, **options):
    return LookLoss(OrderAwareTripletLoss(), weight, **options)


def neighbours_kept(encoder, features):
    """The share of each row's five nearest by features that are among the five nearest by code."""
    centred = features - features.mean(axis=0)
    directions = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    bits = (encoder.embed(features) > 0.5).astype(float)
    hamming = (bits[:, None] != bits[None]).sum(axis=2)
    by_features, by_code = (
        np.argsort(distances + 1e9 * np.eye(len(features)), axis=1, kind="stable")[:, :5]
        for distances in (-directions @ directions.T, hamming)
    )
    pairs = zip(by_features, by_code, strict=True)
    return np.mean([len(set(wanted) & set(found)) / 5 for wanted, found in pairs])


@pytest.mark.parametrize(
    "many_labels",
    [
        pytest.param(False, id="one label"),
        pytest.param(True, id="several labels", marks=pytest.mark.slow),
    ],
)
def test_codes_keep_more_of_the_teachers_neighbours(many_labels):
    made = clouds(classes=3, per_class=60, many_labels=many_labels)
    data = made["features"], made["labels"]
    options = {"epochs": 40, "hidden": 64, "batch_size": 60, "validation": 0.0}
    by_labels = orbithash.train(data, 32, **options)
    with_look = orbithash.train(data, 32, method=look(20), **options)
    kept, kept_with_look = (neighbours_kept(e, data[0]) for e in (by_labels, with_look))
    assert kept_with_look > kept + 0.05


def test_a_run_with_a_teacher_is_saved_and_loaded(arrays, tmp_path):
    encoder = orbithash.train(arrays, 16, method=look(), out=tmp_path / "run", **QUICK)
    loaded = orbithash.load(tmp_path / "run")
    np.testing.assert_array_equal(loaded.encode(arrays[0]), encoder.encode(arrays[0]))
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (record["method"], record["options"]) == ("LookLoss", {"weight": 5})
    assert all(epoch.active_share > 0 for epoch in loaded.history)


@pytest.mark.parametrize("nested", [(), (4, 8)])
@pytest.mark.parametrize("loss", [look(), LookLoss(None, 1.0)], ids=["labels", "no labels"])
def test_a_resumed_run_has_the_same_weights(loss, nested, arrays, tmp_path):
    options = {"method": loss, "nested": nested, "memory": 30, **QUICK}
    undisturbed = orbithash.train(arrays, 16, **options)
    stopped = Hooks(stopping=after_calls(5))
    with pytest.raises(Interrupted):
        orbithash.train(arrays, 16, out=tmp_path / "run", hooks=stopped, **options)
    resumed = orbithash.train(arrays, 16, out=tmp_path / "run", resume=True, **options)
    same_weights(undisturbed, resumed)


@pytest.mark.parametrize("other", [look(4), look(margin_of_bits=1 / 8), look(shares=(0.1, 0.2))])
def test_a_run_is_not_resumed_with_another_teacher_term(other, arrays, tmp_path):
    stopped = Hooks(stopping=after_calls(3))
    with pytest.raises(Interrupted):
        orbithash.train(arrays, 16, out=tmp_path / "run", method=look(), hooks=stopped, **QUICK)
    with pytest.raises(InputError, match="started with other loss"):
        orbithash.train(arrays, 16, out=tmp_path / "run", method=other, resume=True, **QUICK)


def same_weights(first, second):
    for name, weight in first.model()[1].items():
        np.testing.assert_array_equal(second.model()[1][name], weight, err_msg=name)


@pytest.mark.parametrize("nested", [(), (8,)])
def test_the_setting_look_adds_the_term_to_a_loss_of_any_name(nested, arrays, tmp_path):
    options = {"nested": nested, **QUICK}
    named = orbithash.train(arrays, 16, look=0.3, out=tmp_path / "run", **options)
    same_weights(named, orbithash.train(arrays, 16, method=look(0.3), **options))
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (record["method"], record["settings"]["look"]) == ("order-aware", 0.3)
    with pytest.raises(InputError, match=r"finished run with look=0.3, but here it is 0.5"):
        orbithash.train(arrays, 16, look=0.5, out=tmp_path / "run", resume=True, **options)


def test_a_finished_run_of_an_earlier_version_had_no_look(arrays, tmp_path):
    orbithash.train(arrays, 16, out=tmp_path / "run", **QUICK)
    file = tmp_path / "run" / "run.json"
    record = json.loads(file.read_text())
    del record["settings"]["look"]
    file.write_text(json.dumps(record))
    again = {"out": tmp_path / "run", "resume": True, **QUICK}
    orbithash.train(arrays, 16, look=0.0, **again)
    with pytest.raises(InputError, match=r"here it is 0.3"):
        orbithash.train(arrays, 16, look=0.3, **again)


def test_a_run_without_look_has_the_identity_that_it_had_before_there_was_one():
    method = as_method("order-aware")
    assert "look" not in run_identity(method, 16, TrainingSettings(), 0)
    assert run_identity(method, 16, TrainingSettings(look=0.3), 0)["look"] == 0.3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"look": -1.0}, "look=-1.0; give a number >= 0"),
        ({"look": 0.3, "method": "itq"}, "itq is a hasher, and --look adds a term to a loss"),
        ({"look": 0.3, "method": LookLoss(None, 1)}, "LookLoss learns from a teacher already"),
    ],
)
def test_a_look_that_does_not_apply_is_refused(options, message, arrays):
    with pytest.raises(InputError, match=message):
        orbithash.train(arrays, 16, **options)


def after_calls(number):
    calls = iter(range(number))
    return lambda: next(calls, None) is None


def test_the_teacher_is_the_view_that_is_encoded_whichever_is_drawn():
    inputs = torch.arange(12.0).reshape(6, 2)
    views = several_views(inputs, inputs.repeat(9, 1) + 100, np.tile(np.arange(6), 9), seed=0)
    source = TensorBatches(views, torch.arange(6), ShuffledBatches(6, 3), with_teacher=True)
    for batch in source(0):
        assert torch.equal(batch.teacher, inputs[batch.labels])
        assert not torch.equal(batch.inputs, batch.teacher)


def test_losses_by_labels_are_given_no_teacher():
    inputs = torch.rand(6, 2)
    source = TensorBatches(single_views(inputs), torch.arange(6), ShuffledBatches(6, 3))
    assert all(batch.teacher is None for batch in source(0))


def test_the_memory_keeps_the_teachers_vectors_beside_the_embeddings():
    inputs = torch.rand(12, 4, generator=torch.Generator().manual_seed(0))
    network, loss = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid()), Recorder()
    batches = ShuffledBatches(12, 3)
    source = TensorBatches(single_views(inputs), torch.arange(12), batches, with_teacher=True)
    train_network(network, loss, source, TrainingSettings(epochs=1, memory=5))
    first, second, third, _ = loss.seen
    assert first[3] is None
    assert torch.equal(second[1], first[0])
    assert torch.equal(second[3], first[2])
    assert torch.equal(third[1], torch.cat([first[0], second[0]])[-5:])
    assert torch.equal(third[3], torch.cat([first[2], second[2]])[-5:])


def test_a_memory_without_a_teacher_is_restored_from_earlier_checkpoints():
    memory = Memory(4)
    memory.restore({"embeddings": torch.rand(3, 2), "labels": torch.arange(3)})
    assert memory.teacher is None
    memory.add(torch.rand(2, 2), torch.arange(2))
    assert memory.tensors().keys() == {"embeddings", "labels"}


def test_batches_without_a_teacher_are_refused_by_losses_that_take_one():
    class Source:
        def __len__(self):
            return 1

        def __call__(self, epoch, first=0):
            yield Batch(torch.rand(4, 4), torch.arange(4))

    network = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid())
    with pytest.raises(InputError, match="LookLoss takes a teacher's vectors, and the batches"):
        train_network(network, look(), Source(), TrainingSettings(epochs=1))


def test_a_memory_is_refused_if_the_loss_by_labels_takes_none(arrays):
    loss = LookLoss(CentralSimilarityLoss(n_classes=5, n_bits=16), 5)
    with pytest.raises(InputError, match="LookLoss takes no memory"):
        orbithash.train(arrays, 16, method=loss, memory=10, **QUICK)
    orbithash.train(arrays, 16, method=loss, **QUICK)


def test_margins_of_nested_codes_are_scaled_to_each_length():
    loss = LookLoss(OrderAwareTripletLoss(margin=4.0), 5)
    nested = with_nested(as_method(loss), (8,), 32).loss(n_bits=32, n_classes=3, seed=0)
    assert [nested.loss_of(n).loss.margin for n in (8, 32)] == [1.0, 4.0]
    assert [nested.loss_of(n).look.margin for n in (8, 32)] == [None, None]


def test_small_images_are_their_own_teacher():
    rng = np.random.default_rng(0)
    images, labels = rng.random((24, 1, 16, 16), dtype=np.float32), np.arange(24) % 3
    options = {"backbone": "small-cnn", "epochs": 1, "batch_size": 6}
    encoder = orbithash.train((images, labels), 16, method=look(), **options)
    assert np.isfinite(encoder.history[0].loss)


# Images


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Images, one of them unreadable, and the weights of a backbone that counts as trained."""
    folder = tmp_path_factory.mktemp("photos")
    images = coloured(folder / "images")
    images.file(int(images.split.train[5])).write_text("no image")
    torch.manual_seed(3)
    save_file(SmallCNN(channels=3).state_dict(), folder / "small.safetensors")
    return images, {"backbone": "small-cnn", "weights": folder / "small.safetensors"}


WHOLE = {"tune": "whole", "epochs": 2, "batch_size": 12, "workers": 0, "views": 1}


@pytest.mark.parametrize("out", [None, "run"])
@pytest.mark.parametrize("options", [QUICK | {"views": 2}, WHOLE], ids=["head", "whole"])
def test_the_frozen_backbones_features_are_the_teacher(options, out, photos, tmp_path):
    images, network = photos
    loss, out = Recorder(), out and tmp_path / out
    orbithash.train(images, 16, method=loss, out=out, progress=False, **network, **options)
    backbone = load_photo_backbone("small-cnn", network["weights"])
    expected, _ = training_features(images, backbone, tmp_path / "features", n_views=0)
    rows = {tuple(row) for row in np.round(expected.features, 4).tolist()}
    assert loss.seen
    for _, _, teacher, _ in loss.seen:
        assert all(tuple(row) in rows for row in np.round(teacher.numpy(), 4).tolist())


@pytest.mark.slow
def test_a_whole_network_with_a_teacher_resumes_with_the_same_weights(photos, tmp_path):
    images, network = photos
    options = {"method": look(), "progress": False, **network, **WHOLE}
    undisturbed = orbithash.train(images, 16, out=tmp_path / "undisturbed", **options)
    epochs = []  # of the whole network: those of the head are not passed on
    stopped = Hooks(after_epoch=epochs.append, stopping=lambda: bool(epochs))
    with pytest.raises(Interrupted):
        orbithash.train(images, 16, out=tmp_path / "run", hooks=stopped, **options)
    resumed = orbithash.train(images, 16, out=tmp_path / "run", resume=True, **options)
    same_weights(undisturbed, resumed)
    # The setting adds the term to both stages, the head and the whole network.
    named = options | {"method": "order-aware", "look": 5.0}
    same_weights(undisturbed, orbithash.train(images, 16, **named))


def test_a_backbone_without_trained_weights_is_no_teacher(photos):
    with pytest.raises(InputError, match="small-cnn has no trained weights; give another backbone"):
        orbithash.train(photos[0], 16, method=look(), backbone="small-cnn")
    with pytest.raises(InputError, match="--look learns from the backbone's features"):
        orbithash.train(photos[0], 16, look=0.3, backbone="small-cnn")
