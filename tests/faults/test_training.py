"""A run that is killed, or whose power or disk fails, is resumed and ends with the same weights."""

import json
import random
import shutil
import signal

import pytest

from coloured_images import coloured, write_table
from faults.disturbed import Fault
from faults.power_cuts import Disk, cuts, write_state
from feature_files import write_clouds

N_KILLS = {"features": 24, "images": 8}
N_CUTS, N_FULL = 16, 10
ON_FEATURES = (
    *("--bits", "16", "--epochs", "4", "--batch-size", "15", "--hidden", "32"),
    *("--learning-rate", "0.01", "--memory", "40", "--validate-every", "2", "--validation", "0.1"),
    *("--checkpoint-every", "0"),
)
ON_IMAGES = (
    *("--backbone", "small-cnn", "--bits", "16", "--epochs", "2", "--batch-size", "6"),
    *("--tune", "whole", "--learning-rate", "0.003", "--workers", "1", "--checkpoint-every", "0"),
)


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    images = write_table(coloured(folder / "images"), folder / "images.csv")
    return {
        "features": ("train", write_clouds(folder / "clouds.npz"), *ON_FEATURES),
        "images": ("train", images, *ON_IMAGES),
    }


@pytest.fixture(scope="module")
def undisturbed(commands, zygote, tmp_path_factory):
    """What runs make that nothing disturbs, and their numbers of operations on files."""
    made = {}
    for kind, command in commands.items():
        place = tmp_path_factory.mktemp(kind) / "disk"
        place.mkdir()
        count = place.parent / "count"
        process = zygote.command(
            *(*command, "--out", place / "run"),
            output=place.parent / "output",
            fault=Fault(below=place, count=count),
        )
        assert process.wait() == 0, process.text()
        made[kind] = (result(place / "run"), count.stat().st_size)
    return made


def result(run):
    """The weights to the last bit, and the log without the times."""
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    figures = [{key: value for key, value in line.items() if key != "seconds"} for line in log]
    return (run / "model.safetensors").read_bytes(), figures


def ended(zygote, command, out, output):
    """Continue or repeat a run until its end, and return what it has made."""
    process = zygote.command(*command, "--out", out, "--resume", output=output)
    assert process.wait() == 0, process.text()
    assert [path.name for path in out.parent.iterdir()] == [out.name]
    return result(out)


@pytest.mark.parametrize("kind", ["features", "images"])
def test_killed_in_any_operation_on_a_file_a_run_ends_with_the_same_weights(
    tmp_path, zygote, tally, commands, undisturbed, kind
):
    rng = random.Random(0)
    expected, n_operations = undisturbed[kind]
    for number in range(N_KILLS[kind]):
        out, output = tmp_path / str(number) / "run", tmp_path / f"{number}.txt"
        out.parent.mkdir()
        first = zygote.command(
            *(*commands[kind], "--out", out),
            output=output,
            fault=Fault(below=out.parent, kill_at=rng.randint(1, n_operations)),
        )
        assert first.wait() == -signal.SIGKILL, first.text()
        if number % 2:  # and killed again where it goes on
            again = Fault(below=out.parent, kill_at=rng.randint(1, n_operations // 2))
            options = ("--out", out, "--resume")
            assert zygote.command(*commands[kind], *options, output=output, fault=again).wait() <= 0
        assert ended(zygote, commands[kind], out, output) == expected
        tally.add(f"kill -9 of train on {kind}, then --resume")


def test_after_a_power_cut_a_run_ends_with_the_same_weights(
    tmp_path, zygote, tally, commands, undisturbed
):
    place, trace = tmp_path / "disk", tmp_path / "trace"
    place.mkdir()
    disk = Disk(place)
    run = zygote.command(
        *(*commands["features"], "--out", place / "run"),
        output=tmp_path / "output",
        fault=Fault(below=place, trace=trace),
    )
    assert run.wait() == 0, run.text()
    for number, state in cuts(trace, disk, n=N_CUTS, seed=0):
        after = tmp_path / f"after {number}"
        write_state(state, place, after)
        finished = ended(zygote, commands["features"], after / "run", tmp_path / "output")
        assert finished == undisturbed["features"][0]
        tally.add("power cut during train, then --resume")
        shutil.rmtree(after)


def test_a_full_disk_ends_a_run_with_a_message_and_it_can_be_continued(
    tmp_path, zygote, tally, commands, undisturbed
):
    expected, n_operations = undisturbed["features"]
    rng = random.Random(0)
    for number, at in enumerate([*rng.sample(range(3, n_operations), N_FULL), n_operations - 20]):
        out, output = tmp_path / str(number) / "run", tmp_path / f"{number}.txt"
        out.parent.mkdir()
        first = zygote.command(
            *(*commands["features"], "--out", out),
            output=output,
            fault=Fault(below=out.parent, full_at=at),
        )
        if first.wait() != 0:  # the last operations take no space
            error = first.text().splitlines()[-1]
            assert error.startswith("orbithash: ")
            assert "No space left on device" in error
            has_state = (out.parent / "run.partial" / "checkpoint.safetensors").exists()
            assert ("continue with --resume" in error) == has_state
        assert ended(zygote, commands["features"], out, output) == expected
        tally.add("full disk during train, then --resume")
