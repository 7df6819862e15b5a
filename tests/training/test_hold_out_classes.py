"""Classes that are held out of training, and the scores of both parts."""

import json
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

import orbithash
from coloured_images import coloured, write_table
from feature_files import clouds, write_clouds
from orbithash.cli import run
from orbithash.data import LabelledFeatures, Split
from orbithash.errors import InputError
from orbithash.evaluation import Scores, evaluate_codes
from orbithash.training import Hooks, Interrupted

QUICK = {"epochs": 2, "hidden": 16, "batch_size": 20}
PARTS = ("seen in seen", "unseen in unseen", "seen in all", "unseen in all")

pytestmark = pytest.mark.usefixtures("one_thread")


def features(*, many_labels=False):
    arrays = clouds(many_labels=many_labels)
    split = Split(*(arrays[part] for part in ("train", "query", "database")))
    labels = arrays["labels"].astype(bool if many_labels else np.int64)
    return LabelledFeatures(arrays["features"], labels, split)


def only_rows(data, rows):
    return replace(data, split=replace(data.split, train=rows))


@pytest.mark.parametrize("method", ["order-aware", "lda-itq"])
@pytest.mark.parametrize("many_labels", [False, True])
def test_only_images_of_the_other_classes_train(method, many_labels):
    data = features(many_labels=many_labels)
    options = {"method": method, "seed": 1} | (QUICK if method == "order-aware" else {})
    encoder = orbithash.train(data, 8, hold_out_classes=[1, 4], **options)
    assert encoder.training.record.held_out_classes == ("1", "4")
    held_out = data.labels[:, [1, 4]].any(axis=1) if many_labels else np.isin(data.labels, (1, 4))
    seen = [row for row in data.split.train if not held_out[row]]
    same = orbithash.train(only_rows(data, np.array(seen)), 8, **options)
    np.testing.assert_array_equal(encoder.embed(data.features), same.embed(data.features))


@pytest.mark.parametrize("with_split", [True, False])
@pytest.mark.parametrize("many_labels", [False, True])
def test_seen_and_unseen_queries_are_scored_apart(many_labels, with_split):
    data = features(many_labels=many_labels)
    if not with_split:
        data = replace(data, split=Split(train=np.arange(len(data))))
    encoder = orbithash.train(data, 8, method="itq", hold_out_classes=[1, 4])
    scores = orbithash.evaluate(encoder, data)
    assert tuple(scores.transfer) == PARTS
    codes, embeddings = encoder.encode(data.features), encoder.embed(data.features)
    marks = data.labels if many_labels else np.eye(5, dtype=bool)[data.labels]
    is_unseen = marks[:, [1, 4]].any(axis=1)
    for name, part in scores.transfer.items():
        of_queries, of_database = name.split(" in ")
        counted = marks & np.isin(np.arange(5), (1, 4)) if of_queries == "unseen" else marks
        one_by_one = []
        everything = np.arange(len(data))
        for query in data.split.query if with_split else everything:
            if is_unseen[query] != (of_queries == "unseen"):
                continue
            database = data.split.database if with_split else np.delete(everything, query)
            if of_database != "all":
                database = database[is_unseen[database] == (of_database == "unseen")]
            one_by_one.append(
                evaluate_codes(
                    *(codes[[query]], codes[database], counted[[query]], counted[database]),
                    n_bits=8,
                    query_embeddings=embeddings[[query]],
                    recall_at=(1,),
                    map_at_r=True,
                )
            )
        assert part.queries == len(one_by_one)
        for field in ("map", "map_bounds", "map_asymmetric", "map_at_r"):
            values = np.array([getattr(each, field) for each in one_by_one], float)
            assert getattr(part, field) == pytest.approx(values.mean(axis=0), abs=1e-12)
        recall = np.mean([each.recall_at[1] for each in one_by_one])
        assert part.recall_at[1] == pytest.approx(recall, abs=1e-12)


def test_unseen_classes_can_be_named_for_an_encoder_that_knows_none(caplog):
    data = features()
    encoder = orbithash.train(data, 8, method="itq")
    assert orbithash.evaluate(encoder, data).transfer == {}
    assert tuple(orbithash.evaluate(encoder, data, unseen=[0, "3"]).transfer) == PARTS
    few = replace(data, labels=data.labels % 3)  # class 4 is not there
    held_out = orbithash.train(data, 8, method="itq", hold_out_classes=[4])
    assert orbithash.evaluate(held_out, few).transfer == {}
    assert "none of the 1 held-out classes" in caplog.text


def test_the_command_holds_out_classes_and_shows_three_scores(tmp_path, capsys):
    images = coloured(tmp_path / "photos")
    table = str(write_table(images, tmp_path / "photos.csv"))
    out, report = tmp_path / "run", tmp_path / "report"
    command = ["train", table, "--bits", "8", "--out", str(out), "--backbone", "small-cnn"]
    command += ["--epochs", "1", "--batch-size", "8", "--workers", "0"]
    assert run([*command, "--hold-out-classes", "1, 3"]) == 0
    assert json.loads((out / "run.json").read_text())["held_out_classes"] == ["1", "3"]
    kept = (out / "split.csv").read_text().splitlines()
    trained = {line.split(",")[1] for line in kept if "train" in line.rpartition(",")[2]}
    assert trained == {"0", "2"}
    capsys.readouterr()
    assert run(["evaluate", str(out), table, "--out", str(report)]) == 0
    shown = capsys.readouterr().out
    scores = Scores.from_json((report / "scores.json").read_text())
    page = (report / "report.html").read_text()
    assert tuple(scores.transfer) == PARTS
    for text in (shown, page):
        for part in PARTS:
            assert part in text
            assert f"{scores.transfer[part].map:.4f}" in text
        assert f"{scores.look:.4f}" in text
        assert "distinct codes" in text
    assert scores == orbithash.evaluate(orbithash.load(out), table)
    assert "0 of the" not in shown


@pytest.mark.parametrize("unfinished", [False, True])
def test_a_run_that_held_out_other_classes_is_not_resumed(tmp_path, unfinished):
    file, out = write_clouds(tmp_path / "clouds.npz"), tmp_path / "run"
    options = QUICK | {"out": out}
    hooks = Hooks(stopping=lambda: unfinished)
    with pytest.raises(Interrupted) if unfinished else nullcontext():
        orbithash.train(file, 8, hold_out_classes=[0], hooks=hooks, **options)
    for other in ([1], 0.4, None):
        with pytest.raises(InputError, match=r"h[eo]ld.out.classes"):
            orbithash.train(file, 8, hold_out_classes=other, resume=True, **options)
    again = orbithash.train(file, 8, hold_out_classes=["0"], resume=True, **options)
    assert again.training.record.held_out_classes == ("0",)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("1.5", "between 0 and 1"),
        ("0.99", "leaves only 0 with training images"),
        ("wren", "there is no class 'wren' to hold out; the labels are 0, 1, 2"),
    ],
)
def test_bad_classes_are_one_clear_line(tmp_path, capsys, wanted, message):
    file = write_clouds(tmp_path / "clouds.npz")
    command = ["train", str(file), "--bits", "8", "--method", "itq", "--out", str(tmp_path / "run")]
    assert run([*command, "--hold-out-classes", wanted]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line


def test_starting_from_a_run_that_saw_the_classes_is_warned_about(caplog):
    data = features()
    first = orbithash.train(data, 8, **QUICK)
    orbithash.train(data, 8, init=first, hold_out_classes=[2], **QUICK)
    assert "did not hold out 2" in caplog.text
    caplog.clear()
    first = orbithash.train(data, 8, hold_out_classes=[2, 3], **QUICK)
    orbithash.train(data, 8, init=first, hold_out_classes=[2], **QUICK)
    assert "hold out" not in caplog.text
