import json

import numpy as np
import pytest

import orbithash
from clean_processes import start
from coloured_images import coloured, write_table
from feature_files import clouds, write_clouds
from orbithash.cli import run
from orbithash.data import image_table
from orbithash.encoders.runs.fingerprints import weights_digest
from orbithash.metrics.scores import Scores
from orbithash.networks import load_photo_backbone
from orbithash.training import seeded

QUICK = (
    *("--backbone", "small-cnn", "--bits", "12", "--epochs", "6", "--batch-size", "12"),
    *("--learning-rate", "0.005", "--validate-every", "3", "--workers", "1"),
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    images = coloured(folder / "images")
    images.file(int(images.split.train[3])).write_text("no image")
    images.file(int(images.split.query[1])).write_text("no image")
    table = write_table(images, folder / "images.csv")
    board = ["--tensorboard", str(folder / "board")]
    assert run(["train", str(table), *QUICK, "--out", str(folder / "run"), *board]) == 0
    return images, table, folder


def test_train_evaluate_and_encode_images(trained, tmp_path, capsys):
    images, table, folder = trained
    report, codes_file = tmp_path / "report", tmp_path / "codes.npz"
    assert run(["evaluate", str(folder / "run"), str(table), "--out", str(report)]) == 0
    scores = Scores.from_json((report / "scores.json").read_text())
    assert scores.map > 0.5
    assert (scores.queries, scores.database) == (7, 23)
    captured = capsys.readouterr()
    assert "Left out 2 images" in captured.out
    assert captured.err == ""
    assert len((report / "unreadable.txt").read_text().splitlines()) == 2
    assert run(["encode", str(folder / "run"), str(table), "--out", str(codes_file)]) == 0
    assert "Left out 2 images" in capsys.readouterr().out
    listed = (tmp_path / "codes.unreadable.txt").read_text().splitlines()
    assert [line.partition("\t")[2] for line in listed] == ["not an image of a known format"] * 2
    with np.load(codes_file) as codes:
        assert codes["codes"].shape == (30, 2)
        ids = codes["ids"].tolist()
        np.testing.assert_array_equal(codes["labels"], images.labels[ids])
        some = [images.file(row) for row in ids[:5]]
        expected = orbithash.load(folder / "run").encode(some)
        np.testing.assert_array_equal(codes["codes"][:5], expected)


def test_a_run_on_images_records_its_training_and_unreadable_images(trained):
    images, _, folder = trained
    record = json.loads((folder / "run" / "run.json").read_text())
    assert (record["backbone"], record["weights"]) == ("small-cnn", None)
    assert record["settings"]["new_layer_rate"] == 3.0
    unreadable = (folder / "run" / "unreadable.txt").read_text()
    assert unreadable.count("\n") == 1  # the query was never read
    assert images.paths[int(images.split.train[3])] in unreadable
    assert list((folder / "board").iterdir())
    assert len(record["data_digest"]) == 64


def test_queries_that_were_training_images_are_reported(trained, tmp_path, capsys):
    images, table, folder = trained
    kept = image_table(folder / "run" / "split.csv")
    np.testing.assert_array_equal(kept.split.train, images.split.train)
    lines = table.read_text().replace("query", "train").splitlines()
    row = int(images.split.train[0])
    lines[row + 1] = lines[row + 1].replace("train+database", "query")
    (tmp_path / "other.csv").write_text("\n".join(lines))
    out = str(tmp_path / "report")
    assert run(["evaluate", str(folder / "run"), str(tmp_path / "other.csv"), "--out", out]) == 0
    warning = capsys.readouterr().err
    assert warning.count("\n") == 1
    assert "was trained on 1 of the 1 queries" in warning
    assert images.paths[row] in warning


def test_any_folder_of_images_is_encoded(trained, tmp_path):
    images, _, folder = trained
    (tmp_path / "flat").mkdir()
    for row in (0, 9):
        (tmp_path / "flat" / f"{row}.png").write_bytes(images.file(row).read_bytes())
    out = tmp_path / "codes.npz"
    assert run(["encode", str(folder / "run"), str(tmp_path / "flat"), "--out", str(out)]) == 0
    with np.load(out) as codes:
        assert codes["paths"].tolist() == ["0.png", "9.png"]


def test_another_run_can_be_continued_with_its_network(trained, tmp_path, capsys):
    _, table, folder = trained
    further = ("--bits", "12", "--epochs", "1", "--workers", "0", "--init", str(folder / "run"))
    assert run(["train", str(table), *further, "--out", str(tmp_path / "run")]) == 0
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["backbone"] == "small-cnn"
    capsys.readouterr()
    for arguments, message in (
        (("--backbone", "googlenet"), "has the backbone small-cnn, not googlenet"),
        (("--weights", "w.safetensors"), "leave --weights out"),
    ):
        command = ["train", str(table), *further, *arguments, "--out", str(tmp_path / "other")]
        assert run(command) == 2
        assert message in capsys.readouterr().err


def test_training_from_a_run_that_saw_the_held_out_images_is_warned_about(
    trained, tmp_path, capsys, caplog
):
    images, table, folder = trained
    further = ("--bits", "12", "--epochs", "1", "--workers", "0", "--init", str(folder / "run"))
    command = ["train", str(table), *further, "--out", str(tmp_path / "run")]
    assert run([*command, "--validation", "0.25", "--seed", "1"]) == 0
    assert f"images held out for validation trained {folder / 'run'}, where" in caplog.text
    before = json.loads((tmp_path / "run" / "trained_before.json").read_text())
    root = (tmp_path / "run").resolve()
    found = {(root / path).resolve() for path in before}
    assert found <= {images.file(int(row)).resolve() for row in images.split.train}
    assert len(found) >= 20
    queries = table.read_text().replace("query", "train").replace("train+database", "query")
    other = tmp_path / "other.csv"
    other.write_text(queries.replace(",train", ",train+database"))
    capsys.readouterr()
    (tmp_path / "run" / "split.csv").unlink()
    out = str(tmp_path / "report")
    assert run(["evaluate", str(tmp_path / "run"), str(other), "--out", out]) == 0
    assert "was trained on" in capsys.readouterr().err
    assert "these scores are too good" in (tmp_path / "report" / "report.html").read_text()


def test_a_head_trained_on_features_starts_fine_tuning(trained, tmp_path, capsys):
    features = write_clouds(tmp_path / "features.npz", d=128)
    brief = ("--bits", "8", "--epochs", "1")
    head = ("--hidden", "16", "--out", str(tmp_path / "head"))
    assert run(["train", str(features), *brief, *head]) == 0
    command = ["train", str(trained[1]), *brief, "--workers", "0"]
    command += ["--init", str(tmp_path / "head"), "--out", str(tmp_path / "run")]
    assert run(command) == 2
    assert "give --backbone" in capsys.readouterr().err
    assert run([*command, "--backbone", "small-cnn"]) == 0
    assert orbithash.load(tmp_path / "run").hidden == 16
    other = ("--backbone", "small-cnn", "--hidden", "8", "--force")
    assert run([*command, *other]) == 2
    assert "has hidden=16, but here it is 8" in capsys.readouterr().err


def test_a_head_starts_fine_tuning_only_of_the_network_that_made_its_features(
    trained, tmp_path, capsys
):
    with seeded(0):
        ours = weights_digest(load_photo_backbone("small-cnn", None, to_train=True))
    brief = ("--bits", "8", "--epochs", "1")
    arrays = clouds(d=128)
    for name, digest in (("ours", ours), ("theirs", "0123")):
        note = np.array(json.dumps({"weights": digest}))
        np.savez(tmp_path / f"{name}.npz", **arrays, made_with=note)
        features, head = str(tmp_path / f"{name}.npz"), str(tmp_path / f"{name}-head")
        assert run(["train", features, *brief, "--hidden", "0", "--out", head]) == 0
        command = ["train", str(trained[1]), *brief, "--backbone", "small-cnn", "--workers", "0"]
        command += ["--init", head, "--out", str(tmp_path / name)]
        assert run(command) == (0 if name == "ours" else 2)
    assert "trained on features of another network" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "holds images; give --backbone"),
        (["--backbone", "resnet"], "there is no backbone 'resnet'"),
        (["--backbone", "googlenet"], "googlenet needs its weights"),
        (["--backbone", "small-cnn", "--method", "itq"], "itq is fitted to features and cannot"),
        (["--backbone", "small-cnn", "--hidden", "-8"], "training needs at least 0"),
        (["--backbone", "small-cnn", "--precision", "int8"], "precision='int8'"),
        (["--backbone", "small-cnn", "--device", "gpu"], "cannot run a network on 'gpu' here"),
        (["--backbone", "small-cnn", "--tensorboard", "{out}/board"], "lies inside of --out"),
        (["--backbone", "small-cnn", "--tensorboard", __file__], "give --tensorboard another"),
    ],
)
def test_unusable_arguments_give_one_line_and_leave_nothing(
    trained, tmp_path, capsys, arguments, message
):
    out = tmp_path / "run"
    arguments = [argument.format(out=out) for argument in arguments]
    assert run(["train", str(trained[1]), "--bits", "8", "--out", str(out), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_source_without_any_readable_image_ends_the_command_with_one_line(tmp_path):
    images = coloured(tmp_path / "images", per_class=4)
    for row in range(len(images)):
        images.file(row).write_text("no image")
    table = write_table(images, tmp_path / "images.csv")
    output = tmp_path / "output.txt"
    process = start(["train", str(table), *QUICK, "--out", str(tmp_path / "run")], output=output)
    process.join(240)
    hung = process.exitcode is None
    process.kill()
    assert not hung
    assert process.exitcode == 2
    said = [line for line in output.read_text().splitlines() if line.startswith("orbithash:")]
    assert len(said) == 1
    assert "hardly any of the" in said[0]
    assert "Traceback" not in output.read_text()


@pytest.mark.parametrize("command", ["encode", "evaluate", "index"])
def test_an_encoder_runs_on_the_given_device(trained, tmp_path, capsys, command):
    out = tmp_path / ("codes.npz" if command == "encode" else "out")
    arguments = [command, str(trained[2] / "run"), str(trained[1]), "--out", str(out)]
    assert run([*arguments, "--device", "gpu"]) == 2
    error = capsys.readouterr().err
    assert "cannot run a network on 'gpu' here" in error
    assert error.count("\n") == 1
    assert not out.exists()
    assert run([*arguments, "--device", "cpu"]) == 0


def test_an_encoder_of_images_rejects_features(trained, tmp_path, capsys):
    folder = trained[2]
    np.savez(tmp_path / "f.npz", features=np.zeros((3, 4), np.float32))
    out = ["--out", str(tmp_path / "codes.npz")]
    assert run(["encode", str(folder / "run"), str(tmp_path / "f.npz"), *out]) == 2
    assert "this run encodes images, not features" in capsys.readouterr().err
