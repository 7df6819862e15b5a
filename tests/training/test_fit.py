"""`orbithash.train`: any source and method, folders, resuming, and what is refused."""

import threading
from dataclasses import replace

import jaxtyping
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import orbithash
from coloured_images import coloured
from feature_files import clouds, write_clouds
from image_files import noise
from orbithash.data import LabelledFeatures, Split, Vectors
from orbithash.encoders import FeatureEncoder, ImageEncoder, encode_source
from orbithash.errors import InputError
from orbithash.hashers import HASHERS, IterativeQuantization
from orbithash.losses import LOSSES
from orbithash.metrics.scoring import evaluate_codes
from orbithash.networks import SmallCNN
from orbithash.training import Hooks, Interrupted, TrainingSettings

QUICK = {"epochs": 3, "hidden": 16, "batch_size": 20}
ON_IMAGES = {"backbone": "small-cnn", "workers": 0, "epochs": 2, "batch_size": 8}


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def arrays():
    made = clouds()
    return made["features"], made["labels"]


@pytest.fixture
def untyped(monkeypatch):
    """Signatures are not checked, as outside of the tests."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def assert_same_codes(encoder, other, items):
    np.testing.assert_array_equal(encoder.embed(items), other.embed(items))
    np.testing.assert_array_equal(encoder.encode(items), other.encode(items))


def weights(encoder):
    return encoder.model()[1]


def assert_same_weights(encoder, other):
    assert weights(encoder).keys() == weights(other).keys()
    for name, weight in weights(encoder).items():
        np.testing.assert_array_equal(weight, weights(other)[name], err_msg=name)


# Sources


def test_arrays_are_learned_from_and_the_record_says_how(arrays):
    encoder = orbithash.train(arrays, 12, epochs=20, hidden=32, seed=3)
    # Compared as layers alone: a second path has good codes at once.
    untrained = {"epochs": 1, "learning_rate": 1e-12, "head": "layers"}
    start = orbithash.train(arrays, 12, hidden=32, seed=3, **untrained)
    assert orbithash.evaluate(encoder, arrays).map > orbithash.evaluate(start, arrays).map + 0.1
    assert encoder.encode(arrays[0]).shape == (100, 2)
    assert [epoch.number for epoch in encoder.history] == list(range(20))
    record = encoder.training.record
    assert (record.method, record.n_bits, record.seed, record.source) == (
        "order-aware",
        12,
        3,
        "tuple",
    )
    assert (record.settings["epochs"], record.settings["hidden"]) == (20, 32)
    assert record.options == {}


def test_lists_and_tensors_give_the_codes_of_arrays(arrays):
    features, labels = arrays
    encoder = orbithash.train(arrays, 8, **QUICK)
    for source in ((features.tolist(), labels.tolist()), tuple(map(torch.as_tensor, arrays))):
        assert_same_codes(orbithash.train(source, 8, **QUICK), encoder, features)


def test_several_labels_are_learned_from():
    made = clouds(many_labels=True)
    encoder = orbithash.train((made["features"], made["labels"]), 8, **QUICK)
    assert len(encoder.history) == 3


def test_a_file_and_its_opened_content_give_the_same_encoder(tmp_path):
    file = write_clouds(tmp_path / "clouds.npz")
    by_path, by_name, opened = (
        orbithash.train(source, 8, **QUICK)
        for source in (file, str(file), orbithash.data.open_source(file))
    )
    assert_same_weights(by_path, by_name)
    assert_same_weights(by_path, opened)
    assert by_path.training.record.source == str(file)
    assert opened.training.record.source == "LabelledFeatures"


class Photos(Dataset):
    def __init__(self, transform=lambda image: image):
        self.transform = transform

    def __len__(self):
        return 16

    def __getitem__(self, row):
        image = noise((20, 16), seed=row).point(lambda value: value // 2 + 127 * (row % 2))
        return self.transform(image), row % 2


def as_tensor(image):
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def test_datasets_of_images_and_of_tensors_give_the_same_encoder():
    by_image, by_bytes, by_floats = (
        orbithash.train(Photos(transform), 8, **ON_IMAGES)
        for transform in (
            lambda image: image,
            as_tensor,
            lambda image: as_tensor(image) / 255,
        )
    )
    assert isinstance(by_image, ImageEncoder)
    assert_same_weights(by_image, by_bytes)
    assert_same_weights(by_image, by_floats)
    images = [Photos()[row][0] for row in range(16)]
    assert by_image.encode(images).shape == (16, 1)
    np.testing.assert_array_equal(by_image.encode(images), encode_all(by_image, Photos()))
    record = by_image.training.record
    assert (record.source, record.backbone) == ("Photos", "small-cnn")


def encode_all(encoder, source):
    return encode_source(encoder, orbithash.data.open_source(source)).codes


def test_a_dataset_is_learned_by_worker_processes_as_without():
    alone = orbithash.train(Photos(), 8, **ON_IMAGES)
    assert_same_weights(alone, orbithash.train(Photos(), 8, **ON_IMAGES | {"workers": 2}))


def test_a_dataset_of_grey_tensors_is_learned_from():
    pixels = torch.randint(0, 256, (12, 1, 9, 7), dtype=torch.uint8)
    encoder = orbithash.train(TensorDataset(pixels, torch.arange(12) % 2), 8, **ON_IMAGES)
    assert encoder.encode([image[0].numpy() for image in pixels]).shape == (12, 1)


def test_small_images_in_memory_are_learned_by_a_backbone(tmp_path):
    digits = orbithash.data.open_source("digits")
    images, labels = digits.features[:200].reshape(-1, 1, 8, 8), digits.labels[:200]
    encoder = orbithash.train((images, labels), 8, backbone="small-cnn", epochs=2, hidden=0)
    assert isinstance(encoder, FeatureEncoder)
    assert encoder.encode(images).shape == (200, 1)
    encoder.save(tmp_path / "run")
    again = orbithash.load(tmp_path / "run")
    assert_same_codes(again, encoder, images)
    assert again.history == encoder.history
    assert again.training.record == encoder.training.record
    assert again.training.record.backbone == "small-cnn"
    with pytest.raises(InputError, match=r"takes floats of shape \(n, 1, 8, 8\)"):
        again.encode(images[:, 0])
    with pytest.raises(InputError, match=r"\(200, 1, 8, 8\); give vectors .* or a backbone"):
        orbithash.train((images, labels), 8)
    with pytest.raises(InputError, match="take a backbone by its name; give small-cnn"):
        orbithash.train((images, labels), 8, backbone=SmallCNN())
    with pytest.raises(InputError, match="the backbone googlenet cannot take arrays of shape"):
        orbithash.train((images, labels), 8, backbone="googlenet")


def test_a_hasher_takes_small_images_as_their_pixels():
    digits = orbithash.data.open_source("digits")
    images, labels = digits.features[:100].reshape(-1, 1, 8, 8), digits.labels[:100]
    encoder = orbithash.train((images, labels), 8, method="itq")
    flat = orbithash.train((images.reshape(100, 64), labels), 8, method="itq")
    np.testing.assert_array_equal(encoder.encode(images), flat.encode(images.reshape(100, 64)))
    assert orbithash.evaluate(encoder, (images, labels)).map > 0


# Methods


def test_a_hasher_is_fitted_by_its_name_with_options(arrays):
    encoder = orbithash.train(arrays, 8, method="itq", options={"n_iter": 3}, seed=5)
    hasher = HASHERS["itq"](n_bits=8, n_iter=3, random_state=5).fit(*arrays)
    np.testing.assert_array_equal(encoder.embed(arrays[0]), hasher.project(arrays[0]))
    assert encoder.history == ()
    assert encoder.training.seconds > 0
    assert encoder.training.record.options == {"n_iter": 3}


def test_a_given_hasher_is_fitted_and_stays_as_it_was(arrays):
    given = IterativeQuantization(8, n_iter=3, random_state=5)
    encoder = orbithash.train(arrays, 8, method=given)
    named = orbithash.train(arrays, 8, method="itq", options={"n_iter": 3}, seed=5)
    assert_same_codes(encoder, named, arrays[0])
    assert encoder.training.record.method == "itq"
    assert not hasattr(given, "rotation_")


class Pull(nn.Module):
    """An own loss: images of one class together, others apart."""

    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, embeddings, labels):
        self.steps += 1
        same = labels[:, None] == labels
        distances = torch.cdist(embeddings, embeddings)
        return (distances * same).mean() + ((2 - distances).relu() * ~same).mean() / self.steps


def test_an_own_loss_is_learned_with_and_stays_as_it_was(arrays):
    loss = Pull()
    encoder = orbithash.train(arrays, 8, method=loss, **QUICK)
    assert encoder.training.record.method == "Pull"
    assert encoder.history[-1].active_share is None
    assert loss.steps == 0
    assert_same_weights(encoder, orbithash.train(arrays, 8, method=loss, **QUICK))


def test_a_loss_of_the_library_is_the_same_by_name_and_as_an_object(arrays):
    named = orbithash.train(arrays, 8, method="triplet", options={"margin": 3.0}, **QUICK)
    given = orbithash.train(arrays, 8, method=LOSSES["triplet"](margin=3.0), **QUICK)
    assert_same_weights(named, given)
    assert given.training.record.method == "triplet"


# Folders


def test_a_run_in_a_folder_is_what_was_returned(arrays, tmp_path):
    encoder = orbithash.train(arrays, 8, out=tmp_path / "a" / "run", **QUICK)
    again = orbithash.load(tmp_path / "a" / "run")
    assert_same_codes(again, encoder, arrays[0])
    assert again.history == encoder.history
    assert again.training.record == encoder.training.record
    assert {path.name for path in (tmp_path / "a" / "run").iterdir()} == {
        *("model.safetensors", "run.json", "log.jsonl", "scores.json"),
    }
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["run"]
    with pytest.raises(InputError, match="run exists; add --force"):
        orbithash.train(arrays, 8, out=tmp_path / "a" / "run", **QUICK)
    forced = orbithash.train(arrays, 16, out=tmp_path / "a" / "run", force=True, **QUICK)
    assert orbithash.load(tmp_path / "a" / "run").n_bits == forced.n_bits == 16


def test_without_a_folder_nothing_is_written_or_printed(arrays, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    orbithash.train(arrays, 8, **QUICK)
    orbithash.train(arrays, 8, method="lsh")
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr() == ("", "")


def test_progress_is_shown_if_it_is_wanted(arrays, capsys):
    orbithash.train(arrays, 8, progress=True, **QUICK)
    assert "3.0/3 epochs" in capsys.readouterr().out


def test_numpys_integers_are_bits_and_seeds(arrays, tmp_path, untyped):
    bits, seed = np.array([8, 3])
    encoder = orbithash.train(arrays, bits, seed=seed, out=tmp_path / "run", **QUICK)
    assert orbithash.load(tmp_path / "run").training.record == encoder.training.record
    assert_same_weights(encoder, orbithash.train(arrays, 8, seed=3, **QUICK))


@pytest.mark.parametrize("kind", ["features", "images", "own loss"])
def test_an_interrupted_run_resumes_to_the_weights_of_an_uninterrupted_one(kind, arrays, tmp_path):
    source = coloured(tmp_path / "images") if kind == "images" else arrays
    options = {"out": tmp_path / "run", **(ON_IMAGES if kind == "images" else QUICK)}
    if kind == "own loss":
        options["method"] = Pull()
    expected = orbithash.train(source, 8, **options | {"out": None})
    steps = []
    stop_in_second_epoch = Hooks(
        after_step=lambda epochs, loss: steps.append(epochs),
        stopping=lambda: steps[-1:] > [1.0],
    )
    with pytest.raises(Interrupted):
        orbithash.train(source, 8, hooks=stop_in_second_epoch, **options)
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match="is unfinished"):
        orbithash.load(tmp_path / "run")
    with pytest.raises(InputError, match="add --resume"):
        orbithash.train(source, 8, **options)
    with pytest.raises(InputError, match="started with other bits"):
        orbithash.train(source, 16, resume=True, **options)
    epochs = []
    resumed = orbithash.train(
        source, 8, resume=True, hooks=Hooks(after_epoch=epochs.append), **options
    )
    assert_same_weights(resumed, expected)
    assert [replace(epoch, seconds=0) for epoch in resumed.history] == [
        replace(epoch, seconds=0) for epoch in expected.history
    ]
    assert tuple(epochs) == resumed.history
    assert_same_weights(orbithash.load(tmp_path / "run"), expected)


def test_a_finished_run_is_loaded_instead_of_resumed(arrays, tmp_path):
    options = {"out": tmp_path / "run", "resume": True, **QUICK}
    first = orbithash.train(arrays, 8, **options)
    epochs = []
    again = orbithash.train(arrays, 8, hooks=Hooks(after_epoch=epochs.append), **options)
    assert epochs == []
    assert_same_weights(again, first)
    assert again.history == first.history
    assert again.training.record == first.training.record


def test_an_encoder_is_saved_once_and_never_over_another(arrays, tmp_path):
    for method in ("order-aware", "sdh"):
        encoder = orbithash.train(arrays, 8, method=method, **QUICK)
        encoder.save(tmp_path / method)
        again = orbithash.load(tmp_path / method)
        assert_same_codes(again, encoder, arrays[0])
        assert again.history == encoder.history
        assert again.training.record == encoder.training.record
        with pytest.raises(InputError, match="exists"):
            encoder.save(tmp_path / method)
    assert {path.name for path in tmp_path.iterdir()} == {"order-aware", "sdh"}


def test_an_encoder_of_images_is_saved(tmp_path):
    encoder = orbithash.train(Photos(), 8, **ON_IMAGES)
    encoder.save(str(tmp_path / "run"))
    again = orbithash.load(tmp_path / "run")
    images = [Photos()[row][0] for row in range(16)]
    assert_same_codes(again, encoder, images)
    assert again.history == encoder.history
    assert again.training.record == encoder.training.record


def test_a_run_starts_from_another_one_given_as_a_folder_or_an_encoder(arrays, tmp_path):
    start = orbithash.train(arrays, 8, out=tmp_path / "start", method="triplet", **QUICK)
    still = {"epochs": 1, "learning_rate": 1e-12}
    for init, name in ((start, "FeatureEncoder"), (tmp_path / "start", str(tmp_path / "start"))):
        encoder = orbithash.train(arrays, 8, init=init, **still)
        np.testing.assert_allclose(encoder.embed(arrays[0]), start.embed(arrays[0]), atol=1e-4)
        assert encoder.training.record.init == name


def test_a_given_backbone_and_an_encoder_to_start_from_stay_as_they_were():
    torch.manual_seed(0)
    backbone = SmallCNN(channels=3)
    before = {name: weight.clone() for name, weight in backbone.state_dict().items()}
    options = ON_IMAGES | {"backbone": backbone}
    first = orbithash.train(Photos(), 8, **options)
    assert_same_weights(first, orbithash.train(Photos(), 8, **options))
    torch.testing.assert_close(dict(backbone.state_dict()), before, rtol=0, atol=0)
    embeddings = first.embed([Photos()[0][0]])
    orbithash.train(Photos(), 8, init=first, workers=0, epochs=2, learning_rate=0.01)
    np.testing.assert_array_equal(first.embed([Photos()[0][0]]), embeddings)


def test_training_runs_in_a_thread_too(arrays, tmp_path):
    trained = []
    thread = threading.Thread(
        target=lambda: trained.append(orbithash.train(arrays, 8, out=tmp_path / "run", **QUICK))
    )
    thread.start()
    thread.join()
    assert len(trained[0].history) == 3


# Splits


def opened(arrays, **parts) -> LabelledFeatures:
    return LabelledFeatures(*arrays, split=Split(**parts))


def test_validation_rows_of_the_split_choose_the_epoch(arrays):
    features, labels = arrays
    rows = np.arange(100)
    train, held_out = rows[rows % 4 > 0], rows[rows % 4 == 0]
    data = opened(arrays, train=train, validation=held_out)
    once = QUICK | {"epochs": 1, "head": "layers"}
    encoder = orbithash.train(data, 8, **once)
    codes = encoder.encode(features)
    expected = evaluate_codes(
        codes[held_out], codes[train], labels[held_out], labels[train], n_bits=8
    ).map
    assert encoder.history[0].validation_map == pytest.approx(expected, abs=1e-9)
    # The same rows train as without: no share of them is held out.
    plain = orbithash.train(opened(arrays, train=train), 8, **once)
    assert plain.history[0].validation_map is None
    assert_same_weights(plain, encoder)
    shared = orbithash.train(data, 8, validation=0.5, **once)
    assert_same_weights(shared, encoder)


def test_validation_images_of_the_split_choose_the_epoch(tmp_path):
    images = coloured(tmp_path)
    split = Split(train=images.split.train, validation=images.split.query)
    encoder = orbithash.train(replace(images, split=split), 8, validation=0.0, **ON_IMAGES)
    assert encoder.history[-1].validation_map is not None
    plain = orbithash.train(images, 8, validation=0.0, **ON_IMAGES)
    assert plain.history[-1].validation_map is None


def test_other_validation_rows_make_another_run(arrays, tmp_path):
    rows = np.arange(100)
    train, held_out = rows[rows % 5 > 0], rows[rows % 5 == 0]
    options = {"out": tmp_path / "run", **QUICK}
    data = opened(arrays, train=train, validation=held_out)
    with pytest.raises(Interrupted):
        orbithash.train(data, 8, hooks=Hooks(stopping=lambda: True), **options)
    other = opened(arrays, train=train, validation=held_out[:10])
    with pytest.raises(InputError, match="started with other features"):
        orbithash.train(other, 8, resume=True, **options)
    assert len(orbithash.train(data, 8, resume=True, **options).history) == 3


@pytest.mark.parametrize("many_labels", [False, True])
def test_validation_rows_of_classes_that_do_not_train_are_refused(many_labels, arrays):
    features, labels = arrays
    if many_labels:
        labels = np.eye(5, dtype=bool)[labels]
    split = Split(train=np.arange(80), validation=np.arange(80, 100))  # the last class
    with pytest.raises(InputError, match="none of the 20 validation images shares a label"):
        orbithash.train(LabelledFeatures(features, labels, split), 8, **QUICK)


def test_a_split_without_queries_trains_and_is_scored_one_row_at_a_time(arrays):
    data = opened(arrays, train=np.arange(100))
    encoder = orbithash.train(data, 8, **QUICK)
    assert orbithash.evaluate(encoder, data).map == orbithash.evaluate(encoder, arrays).map


# Hooks


def test_hooks_are_called_after_every_step_and_epoch(arrays):
    epochs, steps = [], []
    encoder = orbithash.train(
        arrays,
        8,
        hooks=Hooks(after_epoch=epochs.append, after_step=lambda done, loss: steps.append(done)),
        **QUICK,
    )
    assert tuple(epochs) == encoder.history
    np.testing.assert_allclose(steps, np.arange(1, 16) / 5)


def test_unreadable_images_are_listed_in_the_folder_and_passed_to_the_hook(tmp_path):
    images = coloured(tmp_path / "images")
    broken = images.paths[images.split.train[2]]
    (images.root / broken).write_text("no image")
    met = {}
    orbithash.train(
        images, 8, out=tmp_path / "run", hooks=Hooks(unreadable=met.__setitem__), **ON_IMAGES
    )
    assert met == {broken: "not an image of a known format"}
    listed = (tmp_path / "run" / "unreadable.txt").read_text()
    assert listed == f"{broken}\tnot an image of a known format\n"
    assert (tmp_path / "run" / "split.csv").exists()


def test_settings_may_be_given_whole_and_changed(arrays):
    settings = TrainingSettings(epochs=2, hidden=8)
    encoder = orbithash.train(arrays, 8, settings=settings, epochs=1)
    recorded = encoder.training.record.settings
    assert (recorded["epochs"], recorded["hidden"]) == (1, 8)


# Refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epocs": 3}, "there is no setting 'epocs'; there are batch_size, bias_rate"),
        ({"epochs": 0}, "epochs=0; training needs at least 1"),
        ({"epochs": "three"}, "epochs is 'three'; it must be a whole number"),
        ({"learning_rate": "high"}, "learning_rate is 'high'; it must be a number"),
        ({"preset": "fast"}, "there is no preset 'fast'; choose from default, paper"),
        ({"method": 3}, "got a method of type int; give the name of one, a loss"),
        ({"method": nn.Linear}, "got a method of type type"),
        ({"method": "best"}, "there is no method 'best'; choose a loss"),
        ({"method": "itq", "options": {"depth": 3}}, "itq has no option 'depth'"),
        ({"method": "triplet", "options": {"margin": "wide"}}, "option margin of triplet is"),
        (
            {"method": LOSSES["triplet"](), "options": {"margin": 3.0}},
            "margin: options belong to methods given by name",
        ),
        (
            {"method": IterativeQuantization(8), "options": {"n_iter": 3}},
            "n_iter: options belong to methods given by name",
        ),
        ({"method": IterativeQuantization(16)}, "the hasher has 16 bits, but bits is 8"),
        ({"backbone": "small-cnn"}, "--backbone is for images, and tuple holds features"),
        ({"backbone": SmallCNN()}, "--backbone is for images, and tuple holds features"),
        ({"weights": "w.safetensors"}, "--weights is for images"),
        ({"device": "cuda"}, "--device is for images"),
        ({"workers": 2}, "--workers is for images"),
        ({"init": "nowhere"}, "there is no run nowhere"),
        ({"out": "run", "tensorboard": "run/board"}, "lies inside of --out"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    options, message, arrays, tmp_path, monkeypatch, untyped
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        orbithash.train(arrays, 8, **{"out": "run", **options})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bits", [0, 3, 2000, 8.0, "8"])
def test_bits_that_no_code_can_have_are_refused(bits, arrays, untyped):
    with pytest.raises(InputError, match=f"got {bits!r} bits; codes have 4 to 1024"):
        orbithash.train(arrays, bits)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "itq", "backbone": "small-cnn"}, "itq is fitted to features and cannot train"),
        ({"backbone": "small-cnn", "tune": "head"}, "small-cnn has no trained weights to keep"),
        ({"backbone": "small-cnn", "tune": "top"}, "there is no tune 'top'; choose from head"),
        ({"backbone": "small-cnn", "views": -1}, "views is -1"),
        ({"backbone": "small-cnn", "memory_limit": 0.0}, "the memory limit is 0.0 GB"),
        ({}, "holds images; give --backbone"),
        ({"backbone": "vgg"}, "there is no backbone 'vgg'"),
        ({"backbone": "googlenet"}, "googlenet needs its weights"),
        ({"backbone": "small-cnn", "device": "gpu"}, "cannot run a network on 'gpu' here"),
    ],
)
def test_arguments_that_do_not_fit_images_are_refused(options, message, tmp_path):
    with pytest.raises(InputError, match=message):
        orbithash.train(coloured(tmp_path / "images"), 8, out=tmp_path / "run", **options)
    assert not (tmp_path / "run.partial").exists()


def test_a_source_without_labels_is_refused(arrays):
    with pytest.raises(InputError, match="got a source of type Vectors"):
        orbithash.train(Vectors(arrays[0]), 8)
    with pytest.raises(InputError, match="got 99 labels for 100 rows"):
        orbithash.train((arrays[0], arrays[1][1:]), 8)
    with pytest.raises(InputError, match="at least two classes"):
        orbithash.train((arrays[0], np.zeros(100, int)), 8)
