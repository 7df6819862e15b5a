"""Training on images: a head on a frozen backbone, or the whole network after it."""

import json
import signal

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import save_file

import orbithash
from clean_processes import start
from coloured_images import coloured, write_table
from orbithash.cli import run
from orbithash.encoders import FeatureEncoder
from orbithash.encoders.runs.fingerprints import weights_digest
from orbithash.errors import InputError
from orbithash.hashers import HASHERS
from orbithash.networks import FeatureHead, SmallCNN
from orbithash.training import Hooks, Interrupted, tuning
from orbithash.training.on_images import Validation

HEAD = ("--epochs", "4", "--batch-size", "12", "--hidden", "16")
WHOLE = {"tune": "whole", "epochs": 2, "batch_size": 12, "workers": 0}


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A table of images, and the weights of a backbone that counts as trained."""
    folder = tmp_path_factory.mktemp("photos")
    images = coloured(folder / "images")
    images.file(int(images.split.train[5])).write_text("no image")
    torch.manual_seed(3)
    weights = SmallCNN(channels=3).state_dict()
    save_file(weights, folder / "small.safetensors")
    return images, write_table(images, folder / "images.csv"), folder / "small.safetensors"


def backbone(photos):
    return ("--backbone", "small-cnn", "--weights", str(photos[2]))


def train(photos, **changes):
    given = {"bits": 16, "backbone": "small-cnn", "weights": photos[2], "progress": False}
    return orbithash.train(photos[1], **given | changes)


def readable_files(images):
    return [images.file(row) for row in images.split.query.tolist()]


@pytest.mark.parametrize(
    ("method", "n_views"), [("order-aware", 0), ("order-aware", 3), ("itq", 0)]
)
def test_a_head_has_the_codes_of_a_run_on_the_features_file(photos, tmp_path, method, n_views):
    images, table, _ = photos
    views = ("--views", str(n_views))
    features = tmp_path / "features.npz"
    options = ("--bits", "16", "--method", method, *(HEAD if method == "order-aware" else ()))
    assert run(["features", str(table), *backbone(photos), *views, "--out", str(features)]) == 0
    assert run(["train", str(features), *options, "--out", str(tmp_path / "by-file")]) == 0
    arguments = [*options, *backbone(photos), *views, "--out", str(tmp_path / "by-images")]
    assert run(["train", str(table), *arguments]) == 0
    by_images = orbithash.load(tmp_path / "by-images")
    by_file = orbithash.load(tmp_path / "by-file")
    assert_same_arrays(by_images.head.model()[1], by_file.model()[1])
    # Joined to its backbone, the run on features encodes the same images.
    join = ["join", str(tmp_path / "by-file"), *backbone(photos), "--out", str(tmp_path / "joined")]
    assert run(join) == 0
    joined = orbithash.load(tmp_path / "joined")
    files = readable_files(images)
    np.testing.assert_array_equal(joined.encode(files), by_images.encode(files))
    assert joined.training.record.backbone == "small-cnn"
    assert joined.training.record.method == method


def assert_same_arrays(left, right):
    assert left.keys() == right.keys()
    for name, array in left.items():
        np.testing.assert_array_equal(array, right[name], err_msg=name)


def test_a_run_is_joined_only_to_the_network_that_made_its_features(photos, tmp_path, capsys):
    _, table, weights = photos
    features, head = tmp_path / "features.npz", tmp_path / "head"
    assert run(["features", str(table), *backbone(photos), "--out", str(features)]) == 0
    assert run(["train", str(features), "--bits", "16", "--method", "lsh", "--out", str(head)]) == 0
    other = tmp_path / "other.safetensors"
    torch.manual_seed(4)
    save_file(SmallCNN(channels=3).state_dict(), other)
    with pytest.raises(InputError, match="features of another network, or of other weights"):
        orbithash.load(head, backbone="small-cnn", weights=other)
    joined = orbithash.load(head, backbone="small-cnn", weights=weights)
    joined.save(tmp_path / "joined")
    with pytest.raises(InputError, match="encodes images already"):
        orbithash.load(tmp_path / "joined", backbone="small-cnn", weights=weights)


def test_the_backbone_of_a_head_stays_as_it_is(photos):
    trained_network = SmallCNN(channels=3)
    before = weights_digest(train(photos, method="lsh").backbone)
    encoder = train(photos, epochs=3, batch_size=12, hidden=8)
    assert weights_digest(encoder.backbone) == before
    assert weights_digest(trained_network) != before
    assert encoder.training.record.tune == "head"
    assert encoder.training.record.views == 4
    assert len(encoder.history) == 3


@pytest.mark.slow
@pytest.mark.parametrize("method", ["itq", "sdh"])
def test_a_hasher_searches_by_picture_and_is_exported(photos, tmp_path, method, capsys):
    images, table, _ = photos
    trained, index, model = tmp_path / "run", tmp_path / "x.orbit", tmp_path / "model.onnx"
    options = ("--method", method, "--bits", "8", *backbone(photos))
    assert run(["train", str(table), *options, "--out", str(trained)]) == 0
    assert run(["index", str(trained), str(table), "--out", str(index)]) == 0
    query = str(images.file(int(images.split.query[0])))
    capsys.readouterr()
    assert run(["search", str(index), query, "-k", "3", "--json"]) == 0
    hits = json.loads(capsys.readouterr().out)[0]["hits"]
    assert hits[0]["hamming"] == 0
    assert run(["export", str(trained), "--out", str(model)]) == 0
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    encoder = orbithash.load(trained)
    pixels = np.stack([encoder_view(encoder, file) for file in readable_files(images)])
    (embeddings,) = session.run(None, {"images": pixels})
    expected = encoder.embed(readable_files(images))
    np.testing.assert_allclose(embeddings, expected, atol=1e-4)


def encoder_view(encoder, file):
    from dataclasses import asdict

    from orbithash.data.transforms import read_view

    return read_view(file, **asdict(encoder.view))


@pytest.mark.parametrize("name", HASHERS)
def test_every_hasher_has_a_network_with_its_outputs(name):
    rng = np.random.default_rng(0)
    features = rng.standard_normal((60, 10)).astype(np.float32)
    hasher = HASHERS[name](n_bits=6, random_state=0).fit(features, np.arange(60) % 3)
    encoder = FeatureEncoder(hasher)
    with torch.no_grad():
        outputs = encoder.module()(torch.from_numpy(features)).numpy()
    np.testing.assert_allclose(outputs, encoder.embed(features), atol=1e-6)


def test_a_whole_network_starts_from_a_head_that_is_trained_first(photos, monkeypatch):
    heads = []
    fit = FeatureHead.fit_start
    monkeypatch.setattr(
        FeatureHead, "fit_start", lambda *a, **b: (heads.append(a[0]), fit(*a, **b))[1]
    )
    encoder = train(photos, **WHOLE)
    assert len(heads) == 1  # that of the first stage: the second does not start again
    assert encoder.training.record.tune == "whole"
    assert encoder.hidden == 1024
    assert len(encoder.history) == 2  # only the epochs of the whole network


@pytest.mark.slow
def test_images_that_validate_the_whole_network_did_not_train_its_head(photos, monkeypatch):
    splits = []
    fit = tuning.train_head
    monkeypatch.setattr(
        tuning, "train_head", lambda *a, **b: (splits.append(a[0].split), fit(*a, **b))[1]
    )
    scored = []
    score = Validation.score
    monkeypatch.setattr(
        Validation, "score", lambda self, *a: (scored.append(self.query_rows), score(self, *a))[1]
    )
    train(photos, **WHOLE, validation=0.25)
    assert len(scored[0]) == 8
    np.testing.assert_array_equal(scored[0], splits[0].validation)
    assert not set(scored[0]) & set(splits[0].train)


def test_the_papers_preset_and_given_settings_train_the_whole_network_alone(photos):
    encoder = train(photos, preset="paper", epochs=1, batch_size=12, workers=0)
    assert encoder.training.record.tune == "whole"
    assert encoder.training.record.views is None
    assert encoder.hidden == 0


def test_a_network_without_trained_weights_is_trained_whole(photos):
    encoder = train(photos, weights=None, epochs=1, batch_size=12, workers=0)
    assert encoder.training.record.tune == "whole"
    with pytest.raises(InputError, match="small-cnn has no trained weights to keep"):
        train(photos, weights=None, tune="head")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tune": "top"}, "no tune 'top'; choose from head, whole"),
        ({"views": -1}, "views is -1"),
        ({"memory_limit": 0}, "memory limit is 0"),
        ({"stop_after": 0}, "stop_after is 0"),
        ({"tune": "whole", "method": "itq"}, "itq is fitted to features"),
        ({"tune": "whole", "head": "two-paths"}, "train with --tune head"),
        ({"tune": "whole", "memory_limit": 0.001}, "takes at least .* GB, but the limit is 0.0"),
    ],
)
def test_wrong_arguments_are_named(photos, changes, message):
    with pytest.raises(InputError, match=message):
        train(photos, **changes)


def test_options_of_images_are_refused_for_features(photos, tmp_path):
    rng = np.random.default_rng(0)
    arrays = (rng.standard_normal((40, 6)), np.arange(40) % 4)
    for option in ("tune", "views", "memory_limit"):
        with pytest.raises(InputError, match=f"--{option.replace('_', '-')} is for images"):
            orbithash.train(arrays, bits=8, **{option: "head" if option == "tune" else 1})


@pytest.mark.parametrize(
    "stage",
    [
        pytest.param("features", marks=pytest.mark.slow),
        pytest.param("head", marks=pytest.mark.slow),
        "whole",
    ],
)
def test_a_run_stopped_in_any_stage_resumes_to_the_same_bits(photos, tmp_path, stage):
    settings = {"tune": "whole", "epochs": 2, "batch_size": 12, "workers": 0, "views": 1}
    undisturbed = train(photos, out=tmp_path / "undisturbed", **settings)
    asked, epochs = iter(range(10_000)), []

    def stopping():
        if stage == "whole":
            return len(epochs) == 1
        return next(asked) > (20 if stage == "features" else 200)

    hooks = Hooks(stopping=stopping, after_epoch=epochs.append)
    with pytest.raises(Interrupted):
        train(photos, out=tmp_path / "stopped", hooks=hooks, **settings)
    partial = tmp_path / "stopped.partial"
    assert (partial / "features").exists()
    resumed = train(photos, out=tmp_path / "stopped", resume=True, **settings)
    assert_same_arrays(resumed.model()[1], undisturbed.model()[1])
    kept = {file.name for file in (tmp_path / "stopped").iterdir()}
    files = {"model.safetensors", "run.json", "log.jsonl", "scores.json", "split.csv"}
    assert kept == {*files, "unreadable.txt"}


@pytest.mark.slow
def test_a_head_of_other_settings_is_not_resumed_from(photos, tmp_path):
    settings = WHOLE | {"views": 0, "validation": 0.0}
    epochs = []
    hooks = Hooks(stopping=lambda: len(epochs) == 1, after_epoch=epochs.append)
    with pytest.raises(Interrupted):
        train(photos, out=tmp_path / "run", hooks=hooks, **settings)
    (tmp_path / "run.partial/checkpoint.safetensors").unlink()
    with pytest.raises(InputError, match="was started with other seed"):
        train(photos, out=tmp_path / "run", resume=True, seed=1, **settings)


def test_a_second_ctrl_c_before_the_first_epoch_stops(photos, tmp_path):
    hooks = Hooks(stopping=lambda: True, finishing=lambda: True)
    with pytest.raises(Interrupted):
        train(photos, out=tmp_path / "run", hooks=hooks, epochs=3, batch_size=12)
    with pytest.raises(InputError, match="no epoch to keep yet"):
        train(photos, out=tmp_path / "run", finish=True, epochs=3, batch_size=12)


def test_wrong_arguments_are_found_before_features_are_computed(photos, tmp_path, monkeypatch):
    head = train(photos, epochs=1, batch_size=12, hidden=8, views=0)
    monkeypatch.setattr("orbithash.training.on_backbone.training_features", None)
    with pytest.raises(InputError, match="has n_bits=16, but here it is 8"):
        train(photos, bits=8, init=head, backbone=None, weights=None)
    with pytest.raises(InputError, match="itq has no option 'foo'"):
        train(photos, method="itq", options={"foo": 1})


def test_a_finished_run_is_not_resumed_with_other_arguments(photos, tmp_path):
    given = {"out": tmp_path / "run", "epochs": 1, "batch_size": 12, "hidden": 8, "views": 0}
    train(photos, **given)
    assert train(photos, **given, resume=True).n_bits == 16
    for changes in ({"tune": "whole"}, {"views": 2}, {"epochs": 3}):
        with pytest.raises(InputError, match="is a finished run with"):
            train(photos, **given | changes, resume=True)


@pytest.mark.slow
def test_a_killed_head_resumes_to_the_same_bits(photos, tmp_path):
    def arguments(out):
        options = (*HEAD, "--bits", "16", *backbone(photos), "--checkpoint-every", "0")
        return ["train", str(photos[1]), *options, "--out", str(out)]

    assert run(arguments(tmp_path / "whole")) == 0
    process = start(arguments(tmp_path / "killed"), output=tmp_path / "output.txt")
    partial = tmp_path / "killed.partial"
    while process.is_alive() and not (partial / "checkpoint.safetensors").exists():
        process.join(0.01)
    process.kill()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    if process.exitcode:
        assert run([*arguments(tmp_path / "killed"), "--resume"]) == 0
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert models[0] == models[1]


@pytest.mark.slow
def test_finish_keeps_the_best_epoch_of_a_stopped_run(photos, tmp_path):
    settings = WHOLE | {"epochs": 6, "validation": 0.2, "validate_every": 1, "views": 0}
    epochs = []

    def stopping():
        return len(epochs) == 3

    hooks = Hooks(stopping=stopping, after_epoch=epochs.append)
    with pytest.raises(Interrupted):
        train(photos, out=tmp_path / "run", hooks=hooks, **settings)
    with pytest.raises(InputError, match=r"run\.partial exists; continue .* --resume, .* --finish"):
        orbithash.load(tmp_path / "run")
    finished = train(photos, out=tmp_path / "run", finish=True, **settings)
    assert len(finished.history) == 3
    assert finished.training.best_epoch() == max(epochs, key=lambda epoch: epoch.validation_map)
    assert not (tmp_path / "run.partial").exists()
    with pytest.raises(InputError, match="there is no unfinished run"):
        train(photos, out=tmp_path / "other", finish=True, **settings)
    assert not (tmp_path / "other.partial").exists()


def test_training_ends_after_the_given_time_with_the_best_epoch_so_far(photos, monkeypatch):
    minutes = iter(range(10_000))
    monkeypatch.setattr("orbithash.training.fit.time.monotonic", lambda: 60.0 * next(minutes))
    encoder = train(photos, epochs=1000, batch_size=24, hidden=8, views=0, stop_after=30)
    assert 1 <= len(encoder.history) < 40
