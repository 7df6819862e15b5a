"""Learning without labels: from the look of images, or by hashers that need none."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import orbithash
from coloured_images import coloured
from feature_files import clouds, write_clouds
from orbithash.cli import run
from orbithash.data import ShuffledBatches, Split, class_folders, open_without_labels
from orbithash.errors import InputError
from orbithash.hashers import HASHERS
from orbithash.losses import LookLoss
from orbithash.networks import SmallCNN
from orbithash.training import TrainingSettings
from orbithash.training.methods import as_method, plan_training, without_labels

QUICK = {"epochs": 2, "hidden": 16, "batch_size": 20}

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def features():
    return clouds()["features"]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A folder of class folders, and the weights of a backbone that counts as trained."""
    folder = tmp_path_factory.mktemp("photos")
    images = coloured(folder / "images")
    torch.manual_seed(3)
    save_file(SmallCNN(channels=3).state_dict(), folder / "small.safetensors")
    return images, {"backbone": "small-cnn", "weights": folder / "small.safetensors"}


def same_weights(first, second):
    for name, weight in first.model()[1].items():
        np.testing.assert_array_equal(second.model()[1][name], weight, err_msg=name)


def test_labels_have_no_influence(features):
    bare = orbithash.train(features, 16, labels="none", **QUICK)
    for labels in (clouds()["labels"], np.arange(len(features))):
        same_weights(bare, orbithash.train((features, labels), 16, labels="none", **QUICK))


def test_batches_are_shuffled_and_the_look_is_all_that_is_learned():
    method = without_labels(as_method("order-aware"))
    data = np.zeros(30, dtype=np.int64), Split(np.arange(30))
    plan = plan_training(*data, method, 16, TrainingSettings(batch_size=10), seed=0)
    assert isinstance(plan.batches, ShuffledBatches)
    assert isinstance(plan.loss, LookLoss)
    assert plan.loss.loss is None


@pytest.mark.parametrize("nested", [(), (8,)])
def test_a_run_without_labels_is_recorded_and_resumed(nested, features, tmp_path):
    options = {"nested": nested, "out": tmp_path / "run", **QUICK}
    trained = orbithash.train(features, 16, labels="none", **options)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["labels"] == "none"
    same_weights(trained, orbithash.load(tmp_path / "run"))
    labelled = features, clouds()["labels"]
    with pytest.raises(InputError, match="finished run with labels=none, but here it is source"):
        orbithash.train(labelled, 16, resume=True, **options)


def test_a_loss_that_needs_no_labels_may_be_given(features):
    given = orbithash.train(features, 16, method=LookLoss(None, 1), labels="none", **QUICK)
    same_weights(given, orbithash.train(features, 16, labels="none", **QUICK))


@pytest.mark.parametrize("method", HASHERS)
def test_hashers_are_fitted_without_labels_if_they_need_none(method, features):
    if method in {"lsh", "sh", "pca", "itq", "bre"}:
        hasher = orbithash.train(features, 8, method=method, labels="none")
        expected = HASHERS[method](n_bits=8, random_state=0).fit(features).transform(features)
        np.testing.assert_array_equal(hasher.embed(features) > 0.5, expected)
        return
    with pytest.raises(InputError, match=f"{method} learns from labels; without labels choose"):
        orbithash.train(features, 8, method=method, labels="none")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "dsh"}, "dsh learns from labels; without labels choose order-aware"),
        ({"options": {"gamma": 3}}, "gamma: these are options of the loss by labels"),
        ({"validation": 0.1}, "--validation, which scores classes, needs labels"),
        ({"hold_out_classes": 0.5}, "--hold-out-classes needs labels, and --labels is none"),
        ({"look": 0.3}, "--look, a term beside that by labels, needs labels"),
        ({"labels": "some"}, "labels is 'some'; choose source or none"),
    ],
)
def test_what_needs_labels_is_refused(options, message, features):
    with pytest.raises(InputError, match=message):
        orbithash.train(features, 16, **({"labels": "none"} | options))


def test_too_few_images_are_refused(features):
    with pytest.raises(InputError, match="there are 2 training images; learning from their look"):
        orbithash.train(features[:2], 16, labels="none")


# Sources


def test_queries_of_a_features_file_do_not_train(tmp_path):
    data = open_without_labels(write_clouds(tmp_path / "clouds.npz"))
    made = clouds()
    np.testing.assert_array_equal(data.split.train, made["train"])
    assert not data.labels.any()
    np.savez(tmp_path / "bare.npz", features=made["features"], query=[0, 4], database=[1, 2, 3])
    bare = open_without_labels(tmp_path / "bare.npz")
    assert len(bare.split.train) == len(bare) - 2


def test_images_of_any_nesting_train_and_class_folders_keep_their_queries(photos, tmp_path):
    images, _ = photos
    same, by_class = open_without_labels(images.root), class_folders(images.root)
    assert same.paths == by_class.paths
    np.testing.assert_array_equal(same.split.train, by_class.split.train)
    for row in range(6):
        flat = tmp_path / "flat" / ("deep/er" if row % 2 else "")
        flat.mkdir(parents=True, exist_ok=True)
        shutil.copy(images.file(row), flat / f"{row}.png")
    assert set(open_without_labels(tmp_path / "flat").paths) == {
        "0.png", "2.png", "4.png", "deep/er/1.png", "deep/er/3.png", "deep/er/5.png"
    }  # fmt: skip


@pytest.mark.parametrize("header", ["path", "path,labels"])
def test_a_table_needs_no_labels(header, tmp_path):
    mark = ",;" if "labels" in header else ""
    rows = "".join(f"{row}.png{mark}\n" for row in range(5))
    (tmp_path / "images.csv").write_text(f"{header}\n{rows}")
    data = open_without_labels(tmp_path / "images.csv")
    assert (data.classes, len(data.split.train)) == (("",), 5)
    with pytest.raises(InputError, match=r"labels"):
        orbithash.data.open_source(tmp_path / "images.csv")


# Images and the command


@pytest.mark.parametrize("tune", ["head", pytest.param("whole", marks=pytest.mark.slow)])
def test_a_folder_without_classes_is_learned_from(tune, photos, tmp_path, capsys):
    images, network = photos
    flat = tmp_path / "flat"
    flat.mkdir()
    for row in images.split.train.tolist():
        shutil.copy(images.file(row), flat / f"{row}.png")
    options = ["--backbone", "small-cnn", "--weights", str(network["weights"]), "--tune", tune]
    options += ["--epochs", "2", "--views", "0", "--batch-size", "12", "--workers", "0"]
    out = tmp_path / "run"
    arguments = ["train", str(flat), "--bits", "16", "--labels", "none", "--out", str(out)]
    assert run([*arguments, *options]) == 0
    shown = capsys.readouterr().out
    assert "images, without labels: " in shown
    assert f"orbithash index {out} {flat}" in shown
    assert run(["evaluate", str(out), str(flat)]) == 2
    assert "only train --labels none needs no classes" in capsys.readouterr().err
    assert run(["evaluate", str(out), str(images.root)]) == 0


def test_the_command_refuses_supervised_methods(tmp_path, capsys):
    np.savez(tmp_path / "bare.npz", features=clouds()["features"])
    arguments = ["train", str(tmp_path / "bare.npz"), "--bits", "8", "--labels", "none"]
    assert run([*arguments, "--method", "ksh", "--out", str(tmp_path / "run")]) == 2
    assert "ksh learns from labels" in capsys.readouterr().err
    assert run([*arguments, "--method", "itq", "--out", str(tmp_path / "run")]) == 0
