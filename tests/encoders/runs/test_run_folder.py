import json
import logging
import os
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

import orbithash
from coloured_images import coloured
from feature_files import clouds
from indexed_runs import feature_run, image_run
from orbithash.data import LabelledFeatures, Split, image_table, training_rows, write_features
from orbithash.encoders import Epoch, FeatureEncoder, RunRecord, Training, load_run, save_run
from orbithash.encoders.runs.run_folder import (
    epoch_logger,
    is_finished,
    keep_trained_before,
    read_log,
    read_record,
    trained_queries,
    write_split,
)
from orbithash.errors import InputError
from orbithash.hashers import HASHERS

HISTORY = tuple(
    Epoch(number, 1 / (number + 3), 0.1, None, 0.5, score, 0.25)
    for number, score in enumerate((None, 0.7, 0.6))
)
RECORD = RunRecord("triplet", 8, seed=3, settings={"epochs": 3}, options={"margin": 2.5})


@pytest.fixture
def encoder():
    vectors = clouds()["features"]
    return FeatureEncoder(HASHERS["lsh"](n_bits=8, random_state=0).fit(vectors))


def test_a_saved_run_is_loaded_with_its_record_and_history(encoder, tmp_path):
    encoder.training = Training(RECORD, HISTORY, 1.25)
    save_run(encoder, tmp_path / "new" / "run")
    again = load_run(str(tmp_path / "new" / "run"))
    vectors = clouds()["features"]
    np.testing.assert_array_equal(again.encode(vectors), encoder.encode(vectors))
    assert again.training == encoder.training
    assert again.history == HISTORY
    assert json.loads((tmp_path / "new/run/scores.json").read_text()) == {
        "validation_map": 0.7,
        "best_epoch": 1,
        "epochs": 3,
        "seconds": 1.25,
    }
    assert read_record(tmp_path / "new/run") == RECORD
    assert is_finished(tmp_path / "new/run")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["run"]


def test_an_encoder_of_unknown_training_is_saved_without_a_history(encoder, tmp_path):
    encoder.save(tmp_path / "run")
    again = load_run(tmp_path / "run")
    assert again.history == ()
    assert again.training.record == RunRecord("unknown", 8)
    assert not (tmp_path / "run" / "log.jsonl").exists()


def test_an_existing_folder_is_never_saved_over(encoder, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="run exists"):
        encoder.save(tmp_path / "run")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file is not a folder"):
        encoder.save(tmp_path / "file")
    with pytest.raises(InputError, match="cannot write"):
        encoder.save(tmp_path / "file" / "run")
    (tmp_path / "empty").mkdir()
    encoder.save(tmp_path / "empty")
    assert load_run(tmp_path / "empty").n_bits == 8
    assert {path.name for path in tmp_path.iterdir()} == {"run", "file", "empty"}


def test_a_log_holds_the_epochs_of_the_last_run_to_the_last_digit(tmp_path):
    for epochs in (HISTORY, HISTORY[:2]):
        write = epoch_logger(tmp_path / "log.jsonl")
        for epoch in epochs:
            write(epoch)
    assert read_log(tmp_path / "log.jsonl") == list(HISTORY[:2])
    first = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[0])
    assert first == asdict(HISTORY[0])


@pytest.mark.parametrize("name", ["log.jsonl", "scores.json"])
def test_a_run_whose_log_or_scores_are_damaged_has_no_history(encoder, name, tmp_path):
    encoder.training = Training(RECORD, HISTORY, 1.25)
    encoder.save(tmp_path / "run")
    (tmp_path / "run" / name).write_text("{")
    again = load_run(tmp_path / "run")
    assert (again.history, again.training.record) == ((), RECORD)


def test_a_damaged_record_is_said_to_be_one(encoder, tmp_path):
    encoder.save(tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text('{"method": 3')
    with pytest.raises(InputError, match="is not a run"):
        load_run(tmp_path / "run")


def test_a_flipped_bit_of_the_weights_is_noticed_and_a_run_without_a_digest_is_loaded(
    encoder, tmp_path
):
    encoder.save(tmp_path / "run")
    model = tmp_path / "run" / "model.safetensors"
    content = bytearray(model.read_bytes())
    content[-5] ^= 4
    model.write_bytes(content)
    with pytest.raises(InputError, match=r"model\.safetensors is damaged"):
        load_run(tmp_path / "run")
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    del record["model_sha256"]  # as of an earlier version
    (tmp_path / "run" / "run.json").write_text(json.dumps(record))
    assert load_run(tmp_path / "run").n_bits == 8


def test_a_flipped_bit_of_the_encoder_of_an_index_is_noticed_by_load(encoder, tmp_path):
    with orbithash.open_index(tmp_path / "i.orbit", encoder=encoder):
        pass
    model = tmp_path / "i.orbit" / "model.safetensors"
    assert load_run(tmp_path / "i.orbit").n_bits == 8
    content = bytearray(model.read_bytes())
    content[-5] ^= 4
    model.write_bytes(content)
    with pytest.raises(InputError, match=r"model\.safetensors is not as written"):
        load_run(tmp_path / "i.orbit")


@pytest.mark.parametrize("name", ["v1.2", "v1.2.partial"])
def test_an_unfinished_run_says_how_to_continue_it(tmp_path, name):
    (tmp_path / "v1.2.partial").mkdir()
    with pytest.raises(InputError) as caught:
        orbithash.load(tmp_path / name)
    assert str(caught.value) == (
        f"{tmp_path / 'v1.2'} is unfinished: {tmp_path / 'v1.2.partial'} exists; continue with the "
        "same train command and --resume, or keep the best epoch so far with --finish"
    )


def test_a_folder_that_is_not_there_is_said_so(tmp_path):
    with pytest.raises(InputError, match="there is no run"):
        orbithash.load(tmp_path / "nowhere")


def test_an_encoder_is_loaded_onto_a_device(tmp_path):
    images, features = image_run(tmp_path / "images"), feature_run(tmp_path / "features")
    encoder = orbithash.load(images, device="cpu:0")
    assert next(encoder.backbone.parameters()).device == torch.device("cpu")
    assert orbithash.load(features, device="cpu").n_bits == 12
    with pytest.raises(InputError, match="cannot run a network on 'gpu' here"):
        orbithash.load(images, device="gpu")
    with pytest.raises(InputError, match="features are encoded on cpu; cpu:0 is for images"):
        orbithash.load(features, device="cpu:0")


def test_queries_that_trained_a_run_are_found_by_their_location(tmp_path):
    images = coloured(tmp_path / "images")
    (tmp_path / "run").mkdir()
    assert trained_queries(tmp_path / "run", images) == []
    write_split(images, tmp_path / "run")
    assert trained_queries(tmp_path / "run", images) == []
    some = images.split.train[:3]
    (tmp_path / "link").symlink_to(tmp_path / "images")
    for root in ("images", "link"):
        turned = replace(images, root=tmp_path / root, split=Split(images.split.query, some, some))
        assert trained_queries(tmp_path / "run", turned) == [images.paths[row] for row in some]


def test_a_split_without_queries_is_kept(tmp_path):
    images = coloured(tmp_path / "images")
    train_only = replace(images, split=Split(images.split.train))
    write_split(train_only, tmp_path)
    one = images.split.train[:1]
    queries = replace(images, split=Split(images.split.query, one, one))
    assert len(trained_queries(tmp_path, queries)) == 1


def test_the_split_is_kept_also_if_a_class_has_a_semicolon_in_its_name(tmp_path):
    images = coloured(tmp_path / "images")
    odd = replace(images, classes=("a;b", *images.classes[1:]))
    write_split(odd, tmp_path)
    assert image_table(tmp_path / "split.csv").classes == tuple(sorted(odd.classes))
    trained = replace(odd, split=Split(images.split.query, images.split.train, images.split.train))
    assert len(trained_queries(tmp_path, trained)) == len(images.split.train)


def test_names_that_a_table_of_several_labels_cannot_hold_leave_the_split_out(tmp_path, caplog):
    images = coloured(tmp_path / "images")
    several = images.labels[:, None] == np.arange(len(images.classes))
    odd = replace(images, labels=several, classes=("a;b", *images.classes[1:]))
    with caplog.at_level(logging.WARNING):
        write_split(odd, tmp_path)
    assert "the split is not kept" in caplog.text
    assert not (tmp_path / "split.csv").exists()


def kept_run(folder, images, **record):
    """Write the record and the split of a run, without an encoder."""
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(asdict(replace(RECORD, **record))))
    write_split(images, folder)
    return folder


def turned(images):
    """Return the images with training images as queries, and queries as training images."""
    return replace(images, split=Split(images.split.query, images.split.train, images.split.train))


def no_rows():
    return np.empty(0, dtype=np.int64)


def test_queries_that_trained_a_run_before_are_found_along_the_whole_chain(tmp_path, caplog):
    images, others = coloured(tmp_path / "images"), coloured(tmp_path / "others", seed=1)
    first = kept_run(tmp_path / "first", images)
    second = kept_run(tmp_path / "second", others, init=str(first))
    third = kept_run(tmp_path / "third", others, init=str(second))
    keep_trained_before(first, others, no_rows(), second)
    keep_trained_before(second, others, no_rows(), third)
    assert caplog.text == ""
    for gone in (first, second):
        gone.rename(tmp_path / f"moved {gone.name}")
    trained = [images.paths[row] for row in images.split.train]
    assert trained_queries(third, turned(images)) == trained
    assert trained_queries(third, images) == []
    (third / "trained_before.json").write_text("{")
    assert trained_queries(third, turned(images)) == []


def test_images_held_out_are_warned_about_only_if_they_trained_the_run_before(tmp_path, caplog):
    images = coloured(tmp_path / "images")
    held_out = training_rows(images.labels, images.split, 0.2, seed=3)[1]
    assert len(held_out) == 4
    cases = {
        "0 held out": ({"settings": {"validation": 0.0}}, 4),
        "same held out": ({"settings": {"validation": 0.2}}, 0),
        "head first": ({"settings": {"validation": 0.2}, "tune": "whole", "views": 4}, 0),
    }
    for name, (record, n_trained) in cases.items():
        caplog.clear()
        run = kept_run(tmp_path / name, images, **record)
        keep_trained_before(run, images, held_out, None)
        expected = f"{n_trained} of the 4 images held out for validation trained {run}"
        assert (expected in caplog.text) == (n_trained > 0)
        assert "queries" not in caplog.text
    keep_trained_before(tmp_path / "0 held out", turned(images), no_rows(), None)
    assert "24 of the 24 queries trained" in caplog.text


def test_images_whose_features_trained_a_head_are_found_by_their_paths(tmp_path, caplog):
    images = coloured(tmp_path / "images")
    vectors = np.zeros((len(images), 3), np.float32)
    features = tmp_path / "features.npz"
    write_features(LabelledFeatures(vectors, images.labels, images.split, images.paths), features)
    head = tmp_path / "head"
    head.mkdir()
    (head / "run.json").write_text(json.dumps(asdict(replace(RECORD, source=str(features)))))
    (tmp_path / "run").mkdir()
    keep_trained_before(head, images, images.split.train[:5], tmp_path / "run")
    assert "5 of the 5 images held out for validation trained" in caplog.text
    assert len(trained_queries(tmp_path / "run", turned(images))) == len(images.split.train)
    unseen = replace(RECORD, source=str(features), held_out_classes=("0", "2"))
    (head / "run.json").write_text(json.dumps(asdict(unseen)))
    seen = [images.paths[row] for row in images.split.train if images.labels[row] in (1, 3)]
    (tmp_path / "other").mkdir()
    keep_trained_before(head, images, no_rows(), tmp_path / "other")
    assert trained_queries(tmp_path / "other", turned(images)) == seen
    for damage in (lambda: features.write_text("no arrays"), features.unlink):
        damage()
        caplog.clear()
        keep_trained_before(head, images, images.split.train[:5], None)
        assert caplog.text == ""


def test_a_run_that_holds_a_pipe_is_refused_without_opening_it(tmp_path):
    run = feature_run(tmp_path / "run")
    os.mkfifo(run / "run.json")
    with pytest.raises(InputError, match=r"run.json is a pipe, socket or device; remove it"):
        load_run(run)


@pytest.mark.parametrize(
    "record",
    [
        "[" * 100_000,
        '{"method": 3, "n_bits": 12}',
        '{"method": "lsh", "n_bits": "12"}',
        '{"method": "lsh", "n_bits": 12, "settings": []}',
        '{"method": "lsh", "n_bits": 12, "settings": {"validation": "x"}}',
        '{"method": "lsh", "n_bits": 12, "nested": {"x": 1}}',
        '{"method": "lsh", "n_bits": 12, "held_out_classes": [3]}',
    ],
    ids=lambda record: record[:60],
)
def test_a_record_of_another_kind_is_refused(record, tmp_path):
    run = feature_run(tmp_path / "run")
    (run / "run.json").write_text(record)
    with pytest.raises(InputError, match="is not a run"):
        load_run(run)
