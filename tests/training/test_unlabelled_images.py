"""Images without labels beside labelled ones: they take part in the term by the look alone."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import orbithash
from coloured_images import coloured
from feature_files import clouds
from orbithash.cli import run
from orbithash.data import open_source, partly_labelled_batches, with_unlabelled
from orbithash.errors import InputError
from orbithash.networks import SmallCNN
from orbithash.training import Hooks, Interrupted, TrainingSettings
from orbithash.training.methods import as_method, plan_training

QUICK = {"epochs": 3, "hidden": 16, "batch_size": 20}

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(params=[False, True], ids=["one label", "several labels"])
def arrays(request):
    made = clouds(many_labels=request.param)
    return made["features"], made["labels"]


@pytest.fixture(scope="module")
def further():
    return clouds(seed=3)["features"][:40]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Labelled images, a folder of others without labels, and the options of a backbone."""
    folder = tmp_path_factory.mktemp("photos")
    images, others = coloured(folder / "images"), coloured(folder / "others", seed=1)
    (folder / "flat").mkdir()
    for row in range(10):
        shutil.copy(others.file(row), folder / "flat" / f"{row}.png")
    torch.manual_seed(3)
    save_file(SmallCNN(channels=3).state_dict(), folder / "small.safetensors")
    return images, folder / "flat", folder / "small.safetensors"


def test_they_change_what_is_learned_and_are_recorded(arrays, further, tmp_path):
    options = {"look": 0.5, **QUICK}
    out = tmp_path / "run"
    encoder = orbithash.train(arrays, 16, unlabelled=further, out=out, **options)
    without = orbithash.train(arrays, 16, **options)
    name = next(iter(encoder.model()[1]))
    assert not np.array_equal(encoder.model()[1][name], without.model()[1][name])
    assert json.loads((out / "run.json").read_text())["unlabelled"] == "ndarray"


def test_a_stopped_run_resumes_with_the_same_weights(arrays, further, tmp_path):
    options = {"look": 0.5, "unlabelled": further, "memory": 30, "nested": (8,), **QUICK}
    undisturbed = orbithash.train(arrays, 16, **options)
    epochs = []
    stopped = Hooks(after_epoch=epochs.append, stopping=lambda: bool(epochs))
    with pytest.raises(Interrupted):
        orbithash.train(arrays, 16, out=tmp_path / "run", hooks=stopped, **options)
    other = options | {"unlabelled": further[:30]}
    with pytest.raises(InputError, match="started with other features"):
        orbithash.train(arrays, 16, out=tmp_path / "run", resume=True, **other)
    resumed = orbithash.train(arrays, 16, out=tmp_path / "run", resume=True, **options)
    for name, weight in undisturbed.model()[1].items():
        np.testing.assert_array_equal(resumed.model()[1][name], weight, err_msg=name)


def test_validation_is_by_labelled_images_alone(arrays, further):
    encoder = orbithash.train(
        arrays, 16, look=0.5, unlabelled=further, validation=0.2, validate_every=1, **QUICK
    )
    assert all(epoch.validation_map is not None for epoch in encoder.history)
    data = with_unlabelled(open_source(arrays), further)
    settings = TrainingSettings(look=0.5, validation=0.2)
    plan = plan_training(data.labels, data.split, as_method("order-aware"), 16, settings, seed=0)
    assert plan.n_labelled + len(plan.held_out) == len(arrays[0])
    assert (plan.train_labels[plan.n_labelled :] == -1).all()
    assert (plan.train_labels[: plan.n_labelled] >= 0).all()
    assert set(plan.held_out) < set(range(len(arrays[0])))


def test_they_are_a_fifth_of_each_batch_and_all_take_part():
    labels = np.repeat(np.arange(10), 20)
    batches = partly_labelled_batches(labels, 70, batch_size=50, images_per_class=5, seed=0)
    assert (batches.batch_size, len(batches)) == (50, 5)
    seen = set()
    for epoch in range(8):
        for rows, again in zip(batches(epoch), batches(epoch), strict=True):
            np.testing.assert_array_equal(rows, again)
            assert (rows[:40] < 200).all()
            assert (rows[40:] >= 200).all()
            assert len(set(rows[40:].tolist())) == 10
            seen.update(rows[40:].tolist())
    assert seen == set(range(200, 270))
    few = partly_labelled_batches(labels, 3, batch_size=50, images_per_class=5, seed=0)
    assert few.batch_size == 43


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "--unlabelled adds images to the term by the look.*such as --look 0.3"),
        ({"method": "itq"}, "--unlabelled adds images to the term by the look"),
        (
            {"look": 0.3, "labels": "none"},
            "--unlabelled, which adds images to labelled ones, needs",
        ),
        ({"look": 0.3, "unlabelled": np.ones((4, 3), np.float32)}, r"shape \(3,\), but those"),
    ],
)
def test_what_does_not_apply_is_refused(options, message, further):
    made = clouds()
    with pytest.raises(InputError, match=message):
        orbithash.train(
            (made["features"], made["labels"]), 16, **({"unlabelled": further} | options)
        )


def test_images_of_the_source_are_not_added_again(photos, further, tmp_path):
    images, flat, _ = photos
    shutil.copytree(flat, tmp_path / "more")
    for part in ("query", "train"):
        row = int(getattr(images.split, part)[0])
        (tmp_path / "more" / f"{part}.png").symlink_to(images.file(row))
    data = with_unlabelled(images, tmp_path / "more")
    assert len(data.split.unlabelled) == 10
    assert data.file(len(images)).name == "0.png"
    with pytest.raises(InputError, match=r"all images of .* are in"):
        with_unlabelled(images, images.root)
    with pytest.raises(InputError, match="give image files to image files"):
        with_unlabelled(images, further)


@pytest.mark.parametrize("tune", ["head", pytest.param("whole", marks=pytest.mark.slow)])
def test_a_folder_of_images_is_added_by_the_command(tune, photos, tmp_path, capsys):
    images, flat, weights = photos
    options = ["--backbone", "small-cnn", "--weights", str(weights), "--tune", tune]
    options += ["--epochs", "2", "--views", "1", "--batch-size", "12", "--workers", "0"]
    arguments = ["train", str(images.root), "--bits", "16", "--unlabelled", str(flat)]
    arguments += [*options, "--out", str(tmp_path / "run")]
    assert run(arguments) == 2
    assert "--look 0.3" in capsys.readouterr().err
    assert run([*arguments, "--look", "0.3"]) == 0
    assert "10 without labels" in capsys.readouterr().out
    assert json.loads((tmp_path / "run" / "run.json").read_text())["unlabelled"] == str(flat)
    assert run(["evaluate", str(tmp_path / "run"), str(tmp_path / "run" / "split.csv")]) == 0
