import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from feature_files import write_clouds
from image_files import class_folder
from indexed_runs import image_run
from orbithash import __version__, load
from orbithash.cli import app, run
from orbithash.errors import (
    InputError,
    MissingExtraError,
    ReplacedIndexError,
    ServerError,
    StorageError,
)
from orbithash.index import ENGINES


def test_version_is_printed(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"orbithash {__version__}\n"


def test_list_shows_every_registry(capsys):
    assert run(["list"]) == 0
    out = capsys.readouterr().out
    for name in ("order-aware", "triplet", "lsh", "small-cnn", "digits", "exact"):
        assert name in out


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("can't start new thread"), ValueError("no fault of ours")]
)
def test_too_little_memory_is_one_line_and_other_errors_are_not_hidden(error, capsys, monkeypatch):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr("orbithash.cli.app", fail)
    if isinstance(error, ValueError):
        with pytest.raises(ValueError, match="no fault of ours"):
            run(["list"])
        return
    assert run(["list"]) == 1
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "free memory or raise its limit" in line


def test_list_is_also_json(capsys):
    assert run(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["Search engines"].keys() == ENGINES.keys()
    assert "order-aware" in listed["Methods that train a network (losses)"]


COMMANDS = {command.name: command for command in app.registered_commands}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_has_an_example_with_its_own_options(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    examples = re.findall(
        r"Example: (orbithash .*?)\n\n", f"{COMMANDS[name].callback.__doc__}\n\n", re.DOTALL
    )
    assert examples
    assert run([name, "--help"]) == 0
    shown = capsys.readouterr().out
    for example in examples:
        assert example.split()[1] == name
        for option in (word for word in example.split() if word.startswith("-")):
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", shown.partition("╭")[2]), option


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["dmeo"], "dmeo"),
        (["demo", "--fast"], "--fast"),
        (["demo", "--seed", "one"], "--seed"),
        (["demo", "--seed", "-1"], "--seed"),
    ],
)
def test_wrong_usage_is_one_line_on_stderr_and_exit_code_2(capsys, arguments, complaint):
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert complaint in captured.err
    assert len(captured.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StorageError("the disk is full"), 1),
        (ServerError("no server answers"), 1),
        (ReplacedIndexError(Path("birds.orbit"), "was removed while it was open"), 1),
        (InputError("no such item"), 2),
        (MissingExtraError("milvus"), 2),
    ],
)
def test_an_expected_error_is_one_line_and_its_exit_code(error, code, monkeypatch, capsys):
    def fail(address, engine):
        raise error

    monkeypatch.setattr("orbithash.retrieval.open_index", fail)
    assert run(["search", "birds.orbit", "--like", "1"]) == code
    assert capsys.readouterr().err == f"orbithash: {error}\n"


@pytest.mark.parametrize(
    "command",
    [
        "evaluate RUN SOURCE --out OUT",
        "encode RUN SOURCE --out OUT.npz",
        "index RUN SOURCE --out OUT",
        "export RUN --out OUT.onnx",
        "explain RUN SOURCE --query 0 --out OUT.svg",
        "train SOURCE --bits 8 --init RUN --out OUT",
    ],
)
def test_every_command_names_the_folder_of_an_unfinished_run(command, tmp_path, capsys):
    (tmp_path / "run.partial").mkdir()
    features = write_clouds(tmp_path / "clouds.npz", classes=2, per_class=4)
    places = {"RUN": tmp_path / "run", "SOURCE": features, "OUT": tmp_path / "out"}
    for name, place in places.items():
        command = command.replace(name, str(place))
    assert run(command.split()) == 2
    error = capsys.readouterr().err
    assert f"{tmp_path / 'run'} is unfinished: {tmp_path / 'run.partial'} exists" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "command",
    [
        "evaluate RUN SOURCE --out OUT",
        "encode RUN SOURCE --out OUT.npz",
        "index RUN SOURCE --out OUT",
        "features SOURCE --backbone efficientnet-lite0 --out OUT.npz",
        "train SOURCE --bits 8 --backbone small-cnn --epochs 1 --tune whole --out OUT",
    ],
)
def test_every_command_counts_the_files_of_a_folder_that_it_skips(command, tmp_path, caplog):
    photos = class_folder(tmp_path / "photos", {"cat": 3, "dog": 3})
    (photos / "cat" / "notes.txt").touch()
    encoder = load(image_run(tmp_path / "untrained"))
    encoder.save(tmp_path / "run")
    places = {"RUN": tmp_path / "run", "SOURCE": photos, "OUT": tmp_path / "out"}
    for name, place in places.items():
        command = command.replace(name, str(place))
    assert run(command.split()) == 0
    said = [record.getMessage() for record in caplog.records if "skipped" in record.message]
    assert said == [f"{photos}: 6 images; skipped 1 file: 1 .txt"]


def test_without_a_command_the_help_is_shown(capsys):
    assert run([]) == 2
    assert "demo" in capsys.readouterr().out


def test_help_of_train_has_groups_and_an_example(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["train", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Example: orbithash train photos/ --bits 64" in shown
    titles = [line for line in shown.splitlines() if line.startswith("╭")]
    groups = ("Arguments", "Options", "Method", "Network", "Training", "Run")
    assert [title.strip("╭─╮ ") for title in titles] == list(groups)


def test_shell_completion_can_be_installed(capsys):
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert "--install-completion" in shown
    assert "--show-completion" in shown


def test_commands_and_options_are_completed():
    environment = os.environ | {"_ORBITHASH_COMPLETE": "complete_bash", "COMP_CWORD": "1"}
    for words, expected in (("orbithash ser", "serve"), ("orbithash train --bac", "--backbone")):
        done = subprocess.run(
            [sys.executable, "-c", "from orbithash.cli import main; main()"],
            env=environment | {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.split() == [expected], done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"], ["--version"]])
def test_help_does_not_wait_for_torch(arguments):
    program = (
        "import sys; from orbithash.cli import run; code = run(sys.argv[1:]); "
        "heavy = {'torch', 'numba', 'sklearn', 'matplotlib'} & set(sys.modules); "
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "orbithash", "--version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"orbithash {__version__}\n"
