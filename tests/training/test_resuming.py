"""Whatever ends a run, it goes on and ends as if nothing had happened, to the last bit."""

import json
import os
import random
import signal
import time

import pytest

from clean_processes import start
from coloured_images import coloured, write_table
from feature_files import write_clouds

ON_IMAGES = (
    *("--backbone", "small-cnn", "--bits", "16", "--epochs", "3", "--batch-size", "6"),
    *("--validate-every", "2", "--learning-rate", "0.003", "--workers", "1"),
)
ON_FEATURES = (
    *("--bits", "16", "--epochs", "12", "--batch-size", "15", "--hidden", "32"),
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


@pytest.mark.parametrize("kind", ["images", "features"])
def test_killed_at_any_moment_a_run_ends_with_the_same_weights(kind, sources, tmp_path):
    undisturbed = tmp_path / "undisturbed"
    started = time.monotonic()
    finish(command(sources[kind], undisturbed), tmp_path)
    took = time.monotonic() - started

    out = tmp_path / "run"
    moments = random.Random(os.environ.get("PYTEST_SEED", kind))
    checkpoint = tmp_path / "run.partial" / "checkpoint.safetensors"
    kills = 0
    while kills < 4 and not out.exists():
        before = written(checkpoint)
        process = start([*command(sources[kind], out), "--resume"], output=tmp_path / "output.txt")
        # Once it has got further than the last one: then at any moment.
        while process.is_alive() and written(checkpoint) == before:
            time.sleep(0.002)
        time.sleep(moments.uniform(0, took / 8))
        process.kill()
        process.join()
        kills += 1
    finish([*command(sources[kind], out), "--resume"], tmp_path)
    assert what_was_made(out) == what_was_made(undisturbed)
    assert {path.name for path in out.iterdir()} == {path.name for path in undisturbed.iterdir()}
    assert not checkpoint.parent.exists()


def written(file) -> int:
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def wait_until(condition, *, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop_a_run_saves_itself_and_says_how_to_go_on(number, sources, tmp_path):
    finish(command(sources["images"], tmp_path / "undisturbed"), tmp_path)
    out, output = tmp_path / "run", tmp_path / "stopped.txt"
    process = start(command(sources["images"], out), output=output)
    checkpoint = tmp_path / "run.partial" / "checkpoint.safetensors"
    wait_until(lambda: not process.is_alive() or checkpoint.exists())
    os.kill(process.pid, number)
    process.join()
    assert process.exitcode == 1, output.read_text()
    assert "give the same command with --resume" in output.read_text()
    assert "Traceback" not in output.read_text()
    finish([*command(sources["images"], out), "--resume"], tmp_path)
    assert what_was_made(out) == what_was_made(tmp_path / "undisturbed")


def test_an_unfinished_run_is_neither_replaced_nor_mixed_up(sources, tmp_path):
    out, output = tmp_path / "run", tmp_path / "output.txt"
    process = start(command(sources["features"], out), output=output)
    checkpoint = tmp_path / "run.partial" / "checkpoint.safetensors"
    wait_until(checkpoint.exists)
    os.kill(process.pid, signal.SIGINT)
    process.join()

    def refusal(*arguments) -> str:
        said = tmp_path / "said.txt"
        said.unlink(missing_ok=True)
        process = start([*command(sources["features"], out), *arguments], output=said)
        process.join()
        assert process.exitcode == 2
        return said.read_text()

    assert "add --resume to go on with it, or --force to start anew" in refusal()
    assert "was begun with other seed; go on with the same" in refusal("--resume", "--seed", "5")
    assert "was begun with other margin" in refusal("--resume", "--margin", "3")
    assert checkpoint.exists()
    finish([*command(sources["features"], out), "--force", "--seed", "5"], tmp_path)
    assert json.loads((out / "run.json").read_text())["seed"] == 5
    assert not checkpoint.parent.exists()


def test_a_finished_run_has_nothing_to_go_on_with(sources, tmp_path):
    finish(command(sources["features"], tmp_path / "run"), tmp_path)
    before = what_was_made(tmp_path / "run")
    finish([*command(sources["features"], tmp_path / "run"), "--resume"], tmp_path)
    assert "is finished already" in (tmp_path / "output.txt").read_text()
    assert what_was_made(tmp_path / "run") == before
