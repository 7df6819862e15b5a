import xml.etree.ElementTree as ElementTree

import pytest
from PIL import Image

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
    assert run(["train", str(features), "--bits", "8", "--epochs", "2", "--out", str(out)]) == 0
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


def test_nothing_is_overwritten_unasked(trained, tmp_path):
    picture = tmp_path / "picture.svg"
    picture.write_text("mine")
    assert explain(trained, picture, "4") == 2
    assert picture.read_text() == "mine"
    assert explain(trained, picture, "4", "--force") == 0
