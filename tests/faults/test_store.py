"""An index keeps what it has acknowledged, whenever the process is killed or the power fails."""

import random
import shutil
import signal

import pytest

from faults.disturbed import Fault
from faults.power_cuts import Disk, Event, cuts, read_trace, write_state
from orbithash.index import create_index, open_index
from orbithash.index.addresses import open_folder
from sealed_indexes import N_BITS, assert_nothing_lost, reported, sealing_early

N_KILLS, KILLS_OF_ONE = 80, 20
N_CUTS, N_TRACES = 200, 4
N_BATCHES = 24  # of a traced process; it adds, replaces, removes, seals, merges and compacts


KILLS = "kill -9 while an index is changed, sealed and merged"
CUTS = "power cut while an index is changed, sealed and merged"


def acknowledged(told) -> int:
    return len(reported(told, "added")) + len(reported(told, "removed"))


def test_killed_in_any_operation_on_a_file_a_writer_loses_nothing(tmp_path, zygote, tally):
    rng = random.Random(0)
    for number in range(N_KILLS):
        if number % KILLS_OF_ONE == 0:
            folder, told = tmp_path / f"{number}.orbit", tmp_path / f"{number}.txt"
            create_index(folder, N_BITS).close()
            first = 0
        fault = Fault(below=folder, kill_at=rng.randint(1, 250))
        writer = zygote.start(
            "sealed_indexes:change_told",
            *(str(folder), told, first),
            output=tmp_path / "output",
            fault=fault,
        )
        assert writer.wait() == -signal.SIGKILL, writer.text()
        with open_folder(folder, "a test") as index:
            before, first = acknowledged(told), assert_nothing_lost(index, told, before=first)
            assert index.check() == []
        tally.add(KILLS, acknowledged=before)
        if number % KILLS_OF_ONE == KILLS_OF_ONE - 1:
            assert first > 10
            with sealing_early(), open_index(folder) as index:
                index.compact()  # removes the files that killed processes have left
            assert len(list(folder.glob("*codes-*"))) == 1


def test_a_simulated_power_cut_loses_what_was_not_forced_to_disk(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    disk = Disk(tmp_path)
    name = str(tmp_path / "file")
    for event in (
        Event("open", ("1", "0", name)),
        Event("write", ("1", "0", "3"), b"new"),
        Event("open", ("2", "0", f"{name}2")),
    ):
        disk.play(event)
    assert disk.after_cut(random.Random(0), keep=0.0)[name] == b"old"
    assert {len(disk.after_cut(random.Random(seed), keep=0.5)) for seed in range(9)} == {2, 3}
    disk.play(Event("sync", ("1",)))
    assert disk.after_cut(random.Random(0), keep=0.0)[name] == b"new"


@pytest.mark.parametrize("seed", range(N_TRACES))
def test_what_was_acknowledged_survives_a_power_cut_at_any_moment(tmp_path, zygote, tally, seed):
    place = tmp_path / "disk"
    folder, told, trace = place / "index.orbit", place / "told.txt", tmp_path / "trace"
    place.mkdir()
    create_index(folder, N_BITS).close()
    before = Disk(place)
    writer = zygote.start(
        "sealed_indexes:change_told",
        *(str(folder), told, 0, N_BATCHES + 3 * seed),
        output=tmp_path / "output",
        fault=Fault(below=place, trace=trace),
    )
    assert writer.wait() == 0, writer.text()
    assert_complete(trace, Disk(place), before=before)
    for number, state in cuts(trace, disk := before.again(), n=N_CUTS // N_TRACES, seed=seed):
        after = tmp_path / f"after {number}"
        write_state(state, place, after)
        (after / "told.txt").write_bytes(disk.content(told))  # on somebody's screen
        with open_folder(after / "index.orbit", "a test") as index:
            assert_nothing_lost(index, after / "told.txt", before=0)
            assert index.check() == []
        tally.add(CUTS, acknowledged=acknowledged(after / "told.txt"))
        shutil.rmtree(after)


def assert_complete(trace, now: Disk, *, before: Disk) -> None:
    """Check that the trace explains all that has changed: no write has passed it by."""
    played = before.again()
    for event in read_trace(trace):
        played.play(event)
    assert {name for name in played.names if not name.endswith("-shm")} == set(now.names)
    for name, file in now.names.items():
        assert file is None or played.names[name].whole() == file.whole(), name
