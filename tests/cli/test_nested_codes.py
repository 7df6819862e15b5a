"""Nested codes from the command line: train, evaluate, and use a prefix."""

import json

import numpy as np
import pytest

import orbithash
from feature_files import clouds, write_clouds
from orbithash.cli import run
from orbithash.metrics.scores import Scores

QUICK = ("--epochs", "3", "--hidden", "16", "--learning-rate", "0.01")


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    return write_clouds(tmp_path_factory.mktemp("features") / "clouds.npz")


@pytest.fixture(scope="module")
def nested_run(features, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "nested"
    assert train(features, out, "--nested", "8,16") == 0
    return out


def train(features, out, *arguments) -> int:
    return run(["train", str(features), "--bits", "24", "--out", str(out), *QUICK, *arguments])


def test_a_run_records_its_lengths_and_their_weights(nested_run):
    record = json.loads((nested_run / "run.json").read_text())
    assert list(record["nested"]) == ["8", "16", "24"]
    assert all(weight > 0 for weight in record["nested"].values())
    assert orbithash.load(nested_run).nested == (8, 16)


def test_evaluate_has_a_row_for_every_length(nested_run, features, tmp_path, capsys):
    out = tmp_path / "report"
    assert run(["evaluate", str(nested_run), str(features), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    scores = Scores.from_json((out / "scores.json").read_text())
    assert scores.prefixes.keys() == {8, 16}
    report = (out / "report.html").read_text()
    for n_bits, of_length in {**scores.prefixes, 24: scores}.items():
        (line,) = (line for line in shown.splitlines() if line.split()[:1] == [str(n_bits)])
        assert line.split()[1] == f"{of_length.map:.4f}"
        assert f"{of_length.map:.4f}" in report


def test_encode_writes_the_prefix(nested_run, features, tmp_path):
    for name, more in (("all", ()), ("prefix", ("--bits", "16"))):
        file = str(tmp_path / f"{name}.npz")
        assert run(["encode", str(nested_run), str(features), "--out", file, *more]) == 0
    with np.load(tmp_path / "all.npz") as whole, np.load(tmp_path / "prefix.npz") as prefix:
        assert prefix["n_bits"] == 16
        np.testing.assert_array_equal(prefix["codes"], whole["codes"][:, :2])


def test_an_index_of_a_prefix_is_searched_and_added_to(nested_run, features, tmp_path, capsys):
    out = str(tmp_path / "clouds.orbit")
    command = ["index", str(nested_run), str(features), "--out", out]
    assert run([*command, "--bits", "8"]) == 0
    assert "100 codes of 8 bits" in capsys.readouterr().out
    with orbithash.open_index(out) as index:
        vector = clouds()["features"][3]
        expected = orbithash.load(nested_run).prefix(8)
        assert index.n_bits == index.encoder.n_bits == 8
        np.testing.assert_array_equal(index.encoder.encode([vector]), expected.encode([vector]))
        assert index.query(vector)[0].hamming == 0
    assert run([*command, "--bits", "8"]) == 0
    assert "0 new, 0 changed, 100 as before" in capsys.readouterr().out
    assert run(command) == 2
    assert "with the same --bits" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["encode", "index"])
@pytest.mark.parametrize(
    ("bits", "complaint"),
    [
        ("32", "got 32 bits, but the codes of this encoder have 24"),
        ("12", "the first 12 bits of this encoder's codes were not trained"),
        ("2", "got 2 bits; codes have 4 to 1024"),
    ],
)
def test_a_prefix_that_was_not_trained_is_one_line(
    command, bits, complaint, nested_run, features, tmp_path, capsys
):
    out = tmp_path / "made.npz"
    given = [command, str(nested_run), str(features), "--out", str(out), "--bits", bits]
    assert run(given) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--nested", "8,x"), "--nested is '8,x'; give numbers with commas, such as 16,32"),
        (("--nested", "8,24"), "give different lengths below the 24 bits"),
        (("--nested", "8", "--method", "itq"), "itq is a hasher, and only losses train nested"),
    ],
)
def test_wrong_lengths_are_one_line(arguments, complaint, features, tmp_path, capsys):
    assert train(features, tmp_path / "run", *arguments) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1
