import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from PIL import Image

from coloured_images import coloured, write_table
from feature_files import clouds, write_clouds
from orbithash.cli import run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on features whose images are there for half of the rows."""
    folder = tmp_path_factory.mktemp("explain")
    features = write_clouds(folder / "clouds.npz")
    for path in clouds()["paths"][::2]:
        Image.new("RGB", (40, 30), "teal").save(folder / path)
    out = folder / "run"
    # Layers alone: with a second path, codes of such clouds leave no pair with a loss.
    settings = ["--bits", "8", "--epochs", "2", "--head", "layers"]
    assert run(["train", str(features), *settings, "--out", str(out)]) == 0
    return out, features


def explain(trained, out, query, *more):
    encoder, features = trained
    return run(["explain", str(encoder), str(features), "--query", query, "--out", str(out), *more])


def test_a_query_is_drawn_with_its_list_and_its_pairs(trained, tmp_path, capsys):
    picture = tmp_path / "picture.svg"
    assert explain(trained, picture, "4") == 0
    assert "The pairs that weigh most" in capsys.readouterr().out
    text = picture.read_text(encoding="utf-8")
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert "Query 4: 0" in text
    assert "Share of the loss alone: hinge²" in text
    assert text.count(">rank ") == 16
    assert text.count("<image") >= 1
    assert explain(trained, tmp_path / "again.svg", "4.jpg") == 0  # by its path
    assert (tmp_path / "again.svg").read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("query", "out", "message"),
    [
        ("100", "picture.svg", "give a row number from 0 to 99"),
        ("nowhere.jpg", "picture.svg", "or one of its paths"),
        ("4", "picture.png", "ends in .svg"),
    ],
)
def test_wrong_arguments_give_one_line_and_exit_code_2(
    trained, tmp_path, capsys, query, out, message
):
    capsys.readouterr()
    assert explain(trained, tmp_path / out, query) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.fixture(scope="module")
def separable(tmp_path_factory):
    """A run and features of two classes, in which the queries 0 and 1 are right and 2 is wrong."""
    folder = tmp_path_factory.mktemp("separable")
    features = np.array([[1, 1], [-1, -1], [1, 1], [2, 2], [3, 3], [-2, -2], [-3, -3]], np.float32)
    labels = np.array([0, 1, 1, 0, 0, 1, 1])
    source = folder / "two.npz"
    rows = {"train": np.arange(3, 7), "query": np.arange(3), "database": np.arange(3, 7)}
    np.savez(source, features=features, labels=labels, **rows)
    out = folder / "run"
    assert run(["train", str(source), "--bits", "4", "--method", "lsh", "--out", str(out)]) == 0
    return out, source


def test_a_query_that_is_right_is_said_to_be_with_the_worst_ones_instead(
    separable, tmp_path, capsys
):
    assert explain(separable, tmp_path / "right.svg", "0") == 0
    shown = capsys.readouterr().out
    assert "Query 0 is right: all 2 related images are nearer than any" in shown
    assert "The pairs that weigh most" not in shown
    proposed = [line for line in shown.splitlines() if line.startswith("  --query ")]
    assert len(proposed) == 1
    assert proposed[0].startswith("  --query 2  0.4")
    assert "Right: all 2 related images" in (tmp_path / "right.svg").read_text(encoding="utf-8")


def test_without_a_query_the_worst_is_drawn(separable, tmp_path, capsys):
    encoder, source = separable
    out = tmp_path / "worst.svg"
    assert run(["explain", str(encoder), str(source), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "Query 2: average precision 0.4" in shown
    assert "No other query has errors." in shown
    assert "Query 2: 1" in out.read_text(encoding="utf-8")


def test_a_source_without_a_split_ranks_all_other_rows(separable, tmp_path, capsys):
    encoder, source = separable
    unsplit = tmp_path / "unsplit.npz"
    with np.load(source) as arrays:
        labels = arrays["labels"]
        np.savez(unsplit, features=arrays["features"], labels=labels, train=np.arange(len(labels)))
    assert explain((encoder, unsplit), tmp_path / "picture.svg", "2") == 0
    assert "of 6 images of the database" in (tmp_path / "picture.svg").read_text(encoding="utf-8")


def test_images_are_shown_with_the_query_first(tmp_path, capsys):
    images = coloured(tmp_path / "photos")
    table = write_table(images, tmp_path / "photos.csv")
    small = ("--backbone", "small-cnn", "--epochs", "1", "--workers", "0", "--bits", "8")
    assert run(["train", str(table), *small, "--out", str(tmp_path / "run")]) == 0
    query = int(images.split.query[0])
    by_row, by_file = tmp_path / "row.svg", tmp_path / "file.svg"
    for out, name in ((by_row, str(query)), (by_file, str(images.file(query)))):
        assert explain((tmp_path / "run", images.root), out, name) == 0
    text = by_row.read_text(encoding="utf-8")
    assert text.count("<image") >= 17  # the query and the list
    assert ">query</text>" in text
    assert by_file.read_text(encoding="utf-8") == text


def test_nothing_is_overwritten_unasked(trained, tmp_path):
    picture = tmp_path / "picture.svg"
    picture.write_text("mine")
    assert explain(trained, picture, "4") == 2
    assert picture.read_text() == "mine"
    assert explain(trained, picture, "4", "--force") == 0
