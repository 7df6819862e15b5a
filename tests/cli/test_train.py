import json
import signal
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

import orbithash
from feature_files import clouds, write_clouds
from orbithash.cli import run
from orbithash.encoders.runs.run_folder import read_log
from orbithash.hashers import HASHERS
from orbithash.losses import LOSSES
from orbithash.metrics.scores import Scores

QUICK = ("--epochs", "10", "--validation", "0.1", "--hidden", "32", "--learning-rate", "0.01")


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    return write_clouds(tmp_path_factory.mktemp("features") / "clouds.npz")


def train(features, out, *arguments, bits=16, method="order-aware") -> int:
    quick = QUICK if method in LOSSES else ()
    command = ["train", str(features), "--bits", str(bits), "--method", method, "--out", str(out)]
    return run([*command, *quick, *arguments])


@pytest.mark.parametrize("method", ["order-aware", "itq"])
def test_train_evaluate_and_encode(features, tmp_path, capsys, method):
    out = tmp_path / "run"
    assert train(features, out, method=method) == 0
    assert run(["evaluate", str(out), str(features), "--out", str(tmp_path / "report")]) == 0
    assert run(["encode", str(out), str(features), "--out", str(tmp_path / "codes.npz")]) == 0
    shown = capsys.readouterr().out
    scores = Scores.from_json((tmp_path / "report" / "scores.json").read_text())
    assert scores.map > 0.6  # a fifth of the database is related
    assert f"{scores.map:.4f}" in shown
    assert "precision@10 " in shown
    assert "precision@100" not in shown  # of a database of 75
    assert f"  open {tmp_path / 'report' / 'report.html'}\n" in shown
    assert f"MAP {scores.map:.4f} on clouds.npz" in (tmp_path / "report/report.html").read_text()
    for picture in ("precision_recall.svg", "precision_at.svg"):
        assert "<svg" in (tmp_path / "report" / picture).read_text()

    arrays = clouds()
    encoder = orbithash.load(out)
    with np.load(tmp_path / "codes.npz") as codes:
        assert codes["codes"].shape == (100, 2)
        np.testing.assert_array_equal(codes["codes"], encoder.encode(arrays["features"]))
        np.testing.assert_array_equal(codes["ids"], np.arange(100))
        np.testing.assert_array_equal(codes["labels"], arrays["labels"])
        np.testing.assert_array_equal(codes["paths"], arrays["paths"])
        assert codes["n_bits"] == encoder.n_bits == 16


def test_vectors_without_labels_or_split_are_encoded(features, tmp_path):
    assert train(features, tmp_path / "run", method="lsh") == 0
    np.savez(tmp_path / "new.npz", features=clouds()["features"][:7])
    out = tmp_path / "codes.npz"
    assert run(["encode", str(tmp_path / "run"), str(tmp_path / "new.npz"), "--out", str(out)]) == 0
    with np.load(out) as codes:
        assert sorted(codes) == ["codes", "ids", "n_bits"]
        assert codes["codes"].shape == (7, 2)


def test_another_batch_size_scales_the_learning_rate(features, tmp_path):
    arguments = ["train", str(features), "--bits", "8", "--epochs", "1", "--batch-size", "125"]
    assert run([*arguments, "--out", str(tmp_path / "run")]) == 0
    settings = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert settings["learning_rate"] == pytest.approx(0.01 / 2)


@pytest.mark.parametrize("method", [*LOSSES, *HASHERS])
def test_every_method_learns_from_one_label_and_from_several(method, tmp_path):
    several = write_clouds(tmp_path / "several.npz", many_labels=True)
    one = write_clouds(tmp_path / "one.npz", classes=3, per_class=8)
    options = ["--seed", "1", *(["--option", "n_steps=400"] if method == "mlh" else [])]
    for number, file in enumerate((one, several)):
        assert train(file, tmp_path / f"run{number}", *options, bits=8, method=method) == 0
        assert orbithash.load(tmp_path / f"run{number}").n_bits == 8


def test_the_run_records_how_it_was_trained(features, tmp_path):
    assert train(features, tmp_path / "run", "--margin", "3", "--option", "gamma=3") == 0
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (record["method"], record["n_bits"], record["seed"]) == ("order-aware", 16, 0)
    assert record["options"] == {"margin": 3.0, "gamma": 3}
    assert record["settings"]["epochs"] == 10
    assert "torch" in record["versions"]
    log = read_log(tmp_path / "run" / "log.jsonl")
    assert [epoch.number for epoch in log] == list(range(10))
    for name in ("loss", "active_share", "bit_balance", "learning_rate", "seconds"):
        assert all(isinstance(getattr(epoch, name), float) for epoch in log)
    scores = json.loads((tmp_path / "run" / "scores.json").read_text())
    validated = {epoch.number: epoch.validation_map for epoch in log if epoch.validation_map}
    assert list(validated) == [4, 9]
    assert scores["validation_map"] == max(validated.values())
    assert validated[scores["best_epoch"]] == scores["validation_map"]


def test_the_same_seed_gives_the_same_weights_bit_for_bit(features, tmp_path):
    for name, seed in (("one", "3"), ("again", "3"), ("other", "4")):
        assert train(features, tmp_path / name, "--seed", seed) == 0
    one, again, other = (
        load_file(tmp_path / name / "model.safetensors") for name in ("one", "again", "other")
    )
    assert all(np.array_equal(one[name], again[name]) for name in one)
    assert not all(np.array_equal(one[name], other[name]) for name in one)


def test_the_papers_preset_trains_a_linear_head(features, tmp_path):
    arguments = ["--bits", "8", "--preset", "paper", "--epochs", "3", "--out", str(tmp_path / "r")]
    assert run(["train", str(features), *arguments]) == 0
    settings = json.loads((tmp_path / "r" / "run.json").read_text())["settings"]
    assert (settings["optimizer"], settings["hidden"]) == ("sgd", 0)
    assert load_file(tmp_path / "r" / "model.safetensors")["hash_layer.weight"].shape == (8, 16)


def test_hard_negatives_start_from_another_run(features, tmp_path):
    assert train(features, tmp_path / "plain", method="triplet") == 0
    hard = ("--init", str(tmp_path / "plain"), "--learning-rate", "1e-12")
    assert train(features, tmp_path / "hard", *hard, method="triplet-hard-negative") == 0
    # At this learning rate the weights stay where they started.
    plain, hard = (load_file(tmp_path / name / "model.safetensors") for name in ("plain", "hard"))
    for name in ("hidden_layers.0.weight", "hash_layer.weight"):
        np.testing.assert_allclose(hard[name], plain[name], atol=1e-8)


def without(name):
    return {key: array for key, array in clouds().items() if key != name}


def with_nan():
    arrays = clouds()
    arrays["features"][3, 1] = np.nan
    return arrays


def with_a_class_of_one_image():
    arrays = clouds()
    arrays["labels"][arrays["train"][0]] = 5
    return arrays | {"classes": np.array(["ant", "bee", "cat", "dog", "emu", "fox"])}


def with_one_class():
    return clouds() | {"labels": np.zeros(100, dtype=int)}


@pytest.mark.parametrize(
    ("arrays", "arguments", "message"),
    [
        (with_nan(), {}, "1 rows of features contain NaN"),
        (without("labels"), {}, "has no array 'labels'"),
        (without("train"), {"method": "itq"}, "has no array 'train'"),
        (with_a_class_of_one_image(), {}, "have one training image, the first is 'fox'"),
        (with_one_class(), {}, "at least two classes"),
        (clouds(), {"method": "itq", "bits": 32}, "n_bits=32, one per principal component"),
        (clouds(), {"method": "oder-aware"}, "there is no method 'oder-aware'"),
        (clouds() | {"train": np.array([1])}, {"method": "lsh"}, "lsh cannot be fitted"),
        (clouds(), {"bits": 3}, "got 3 bits; codes have 4 to 1024"),
    ],
)
def test_unusable_input_gives_one_line_and_exit_code_2(
    tmp_path, capsys, arrays, arguments, message
):
    np.savez(tmp_path / "wrong.npz", **arrays)
    assert train(tmp_path / "wrong.npz", tmp_path / "run", **arguments) == 2
    assert_one_line(capsys, message)
    assert [path.name for path in tmp_path.iterdir()] == ["wrong.npz"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "papr"], "there is no preset 'papr'"),
        (["--epochs", "0"], "epochs=0"),
        (["--validation", "1"], "validation=1"),
        (["--option", "gamma"], "is not NAME=VALUE"),
        (["--option", "colour=red"], "order-aware has no option 'colour'"),
        (["--option", "gamma=high"], "option gamma of order-aware is 'high'"),
        (["--margin", "-1"], "margin must be"),
        (["--init", "nowhere"], "there is no run nowhere"),
        (["--learning-rate", "nan"], "learning_rate=nan"),
        (["--device", "cuda"], "--device is for images"),
        (["--workers", "2"], "--workers is for images"),
        (["--backbone", "small-cnn"], "--backbone is for images"),
    ],
)
def test_wrong_arguments_give_one_line_and_exit_code_2(
    features, tmp_path, capsys, arguments, message
):
    assert train(features, tmp_path / "run", *arguments) == 2
    assert_one_line(capsys, message)
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_kept_unless_forced(features, tmp_path, capsys):
    assert train(features, tmp_path / "run") == 0
    assert train(features, tmp_path / "run", "--seed", "1") == 2
    assert_one_line(capsys, "add --force")
    assert train(features, tmp_path / "run", "--seed", "1", "--force") == 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["seed"] == 1


def test_a_folder_without_a_run_and_features_of_another_size_are_rejected(
    features, tmp_path, capsys
):
    (tmp_path / "empty").mkdir()
    for command in ("evaluate", "encode"):
        out = str(tmp_path / "out.npz")
        assert run([command, str(tmp_path / "empty"), str(features), "--out", out]) == 2
        assert_one_line(capsys, "give a folder that train wrote")
    assert train(features, tmp_path / "run") == 0
    wider = write_clouds(tmp_path / "wider.npz", d=20)
    assert run(["evaluate", str(tmp_path / "run"), str(wider), "--out", str(tmp_path / "r")]) == 2
    assert_one_line(capsys, "floats of shape (n, 16)")


def assert_one_line(capsys, message):
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("command", ["train", "evaluate", "encode"])
def test_help_does_not_wait_for_torch(command):
    code = (
        f"import sys; from orbithash.cli import run; code = run(['{command}', '--help']); "
        "sys.exit(code or bool({'torch', 'sklearn', 'numba'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_the_package_does_not_load_torch():
    code = "import orbithash, sys; orbithash.load; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_resuming_takes_no_other_folder_for_a_finished_run(features, tmp_path, capsys):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").touch()
    assert train(features, tmp_path / "photos", "--resume") == 2
    assert_one_line(capsys, "exists; add --force")


def test_signals_stop_a_hasher_at_once(features, tmp_path, monkeypatch):
    def now():
        return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    handlers, before = [], now()

    def fit(self, X, y=None):
        handlers.extend(now())
        raise KeyboardInterrupt

    monkeypatch.setattr(HASHERS["lsh"], "fit", fit)
    assert train(features, tmp_path / "run", method="lsh") == 1
    assert handlers == before
    assert list(tmp_path.iterdir()) == []
