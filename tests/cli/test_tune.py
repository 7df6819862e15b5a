import json
import sys

import pytest

from feature_files import write_clouds
from orbithash.cli import run


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    return write_clouds(tmp_path_factory.mktemp("features") / "clouds.npz")


def test_the_best_settings_can_be_given_to_train(features, tmp_path, capsys):
    study, out = tmp_path / "study", tmp_path / "run"
    quick = ["--trials", "2", "--epochs", "2"]
    command = ["tune", str(features), "--bits", "8", "--out", str(study), *quick]
    assert run(command) == 0
    shown = capsys.readouterr().out
    assert "best of 2 trials" in shown
    assert f"--settings {study / 'best.toml'}" in shown
    best = study / "best.toml"
    train = ["train", str(features), "--bits", "8", "--out", str(out), "--settings", str(best)]
    assert run([*train, "--epochs", "1"]) == 0
    record = json.loads((out / "run.json").read_text())
    trials = json.loads((study / "trials.json").read_text())["trials"]
    values = max(trials, key=lambda trial: trial["map"])["values"]
    assert record["settings"]["learning_rate"] == values["learning_rate"]
    assert record["options"]["margin"] == pytest.approx(8 * values["margin_of_bits"])
    assert record["settings"]["epochs"] == 1  # the command line comes first
    assert record["settings"]["validation"] == 0.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('method = "triplet"', "add --method triplet"),
        ('method = "order-aware"\n[settings]\nspeed = 3', "sets 'speed'"),
        ("epochs = ", "has no settings to train with"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(features, tmp_path, capsys, text, message):
    file = tmp_path / "settings.toml"
    file.write_text(text)
    out = tmp_path / "run"
    command = ["train", str(features), "--bits", "8", "--out", str(out), "--settings", str(file)]
    assert run(command) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_images_are_described_first(tmp_path, capsys):
    assert run(["tune", str(tmp_path), "--bits", "8", "--out", str(tmp_path / "study")]) == 2
    assert "orbithash features" in capsys.readouterr().err


def test_without_optuna_the_missing_extra_is_named(features, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    command = ["tune", str(features), "--bits", "8", "--out", str(tmp_path / "study")]
    assert run(command) == 2
    assert "orbithash[tune]" in capsys.readouterr().err
