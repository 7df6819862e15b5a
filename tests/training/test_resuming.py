"""Whatever ends a run, it goes on and ends as if nothing had happened, to the last bit."""

import json
import shutil
import signal

import pytest

from clean_processes import start
from coloured_images import coloured, write_table
from feature_files import write_clouds
from orbithash.cli import run

ON_IMAGES = (
    *("--backbone", "small-cnn", "--bits", "16", "--epochs", "3", "--batch-size", "6"),
    *("--validate-every", "2", "--learning-rate", "0.003", "--workers", "1"),
)
ON_FEATURES = (
    *("--bits", "16", "--epochs", "6", "--batch-size", "15", "--hidden", "32"),
    *("--learning-rate", "0.01", "--memory", "40", "--validate-every", "3", "--validation", "0.1"),
)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    images = coloured(folder / "images")
    images.file(int(images.split.train[2])).write_text("no image")
    return {
        "images": (str(write_table(images, folder / "images.csv")), *ON_IMAGES),
        "features": (str(write_clouds(folder / "clouds.npz")), *ON_FEATURES),
    }


@pytest.fixture(scope="module")
def undisturbed(sources, tmp_path_factory):
    """Runs that nothing has stopped."""
    folder = tmp_path_factory.mktemp("undisturbed")
    for kind, source in sources.items():
        finish(command(source, folder / kind), folder)
    return folder


def command(source, out) -> list[str]:
    return ["train", *source, "--out", str(out), "--checkpoint-every", "0"]


def finish(arguments, folder) -> None:
    process = start(arguments, output=folder / "output.txt")
    process.join()
    assert process.exitcode == 0, (folder / "output.txt").read_text()


def what_was_made(run):
    """The weights to the last bit, and the log without the times."""
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    figures = [{key: value for key, value in line.items() if key != "seconds"} for line in log]
    return (run / "model.safetensors").read_bytes(), figures


@pytest.mark.parametrize("kind", [pytest.param("images", marks=pytest.mark.slow), "features"])
def test_killed_at_any_moment_a_run_ends_with_the_same_weights(
    kind, sources, undisturbed, tmp_path
):
    out, checkpoint = tmp_path / "run", tmp_path / "run.partial" / "checkpoint.safetensors"
    resumed, output = [*command(sources[kind], out), "--resume"], tmp_path / "output.txt"
    # Before the first checkpoint, before one is renamed, before and after one is written.
    for moment in (3, 12, 16, 25):
        process = start(resumed, output=output, signal_at=(signal.SIGKILL, moment))
        process.join()
        assert process.exitcode == -signal.SIGKILL, output.read_text()
    assert checkpoint.exists()
    finish([*command(sources[kind], out), "--resume"], tmp_path)
    assert what_was_made(out) == what_was_made(undisturbed / kind)
    assert names_in(out) == names_in(undisturbed / kind)
    assert not checkpoint.parent.exists()


@pytest.mark.parametrize(
    ("kind", "number"), [("images", signal.SIGINT), ("features", signal.SIGTERM)]
)
def test_asked_to_stop_a_run_saves_itself_and_says_how_to_go_on(
    kind, number, sources, undisturbed, tmp_path
):
    out, output = tmp_path / "run", tmp_path / "stopped.txt"
    process = stopped(command(sources[kind], out), number, output)
    assert process.exitcode == 1, output.read_text()
    assert "repeat the command with --resume" in output.read_text()
    assert "Traceback" not in output.read_text()
    finish([*command(sources[kind], out), "--resume"], tmp_path)
    assert what_was_made(out) == what_was_made(undisturbed / kind)


def test_an_unfinished_run_is_neither_replaced_nor_mixed_up(sources, tmp_path, capsys):
    out, checkpoint = tmp_path / "run", tmp_path / "run.partial" / "checkpoint.safetensors"
    begun = command(sources["features"], out)
    stopped([*begun, "--option", "gamma=3"], signal.SIGINT, tmp_path / "output.txt")

    def refusal(*arguments) -> str:
        assert run([*begun, *arguments]) == 2
        return capsys.readouterr().err

    assert "add --resume to continue it, or --force to start again" in refusal()
    assert "was started with other gamma; use the same" in refusal("--resume")
    changed = ("--resume", "--option", "gamma=3", "--seed", "5", "--margin", "3")
    assert "was started with other margin and seed" in refusal(*changed)
    assert checkpoint.exists()
    assert run([*begun, "--force", "--seed", "5"]) == 0
    assert json.loads((out / "run.json").read_text())["seed"] == 5
    assert not checkpoint.parent.exists()


def test_a_finished_run_has_nothing_to_go_on_with(sources, undisturbed, capsys):
    before = what_was_made(undisturbed / "features")
    assert run([*command(sources["features"], undisturbed / "features"), "--resume"]) == 0
    assert "is finished already" in capsys.readouterr().out
    assert what_was_made(undisturbed / "features") == before


def test_a_finished_run_is_not_resumed_with_other_settings(sources, undisturbed, tmp_path, capsys):
    arguments = [*command(sources["features"], undisturbed / "features"), "--resume"]
    before = what_was_made(undisturbed / "features")
    for changed, named in (
        (("--preset", "paper"), "preset=default, but here it is paper"),
        (("--option", "gamma=3"), "options=none, but here it is {'gamma': 3}"),
        (("--margin", "3"), "options=none"),
        (("--init", "gone"), "init=none, but here it is gone"),
        (("--learning-rate", "0.5"), "learning_rate=0.01, but here it is 0.5"),
        (("--bits", "24"), "n_bits=16, but here it is 24"),
    ):
        assert run([*arguments, *changed]) == 2
        assert f"is a finished run with {named}" in capsys.readouterr().err
    other = str(write_clouds(tmp_path / "other.npz", seed=5))
    assert run([arguments[0], other, *arguments[2:]]) == 2
    assert f"and {other} holds other data" in capsys.readouterr().err
    same = str(shutil.copy(arguments[1], tmp_path / "same.npz"))
    assert run([arguments[0], same, *arguments[2:]]) == 0
    assert what_was_made(undisturbed / "features") == before


def stopped(arguments, number, output):
    """A run that was asked to stop once it had checkpoints, and has ended."""
    process = start(arguments, output=output, signal_at=(number, 20))
    process.join()
    return process


def names_in(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}
