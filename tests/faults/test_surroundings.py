"""Faults around a command: permissions, files that go, other writers, the clock, memory, Milvus."""

import os
import random
import shutil
import subprocess

import numpy as np
import pytest

from coloured_images import coloured
from faults.disturbed import Fault
from feature_files import write_clouds
from index_writer import BATCH, N_BITS, batch_codes, batch_metadata, last_stored_batch
from indexed_runs import image_run
from milvus_servers import new_collection
from orbithash.errors import HashingError
from orbithash.index import create_index, open_index
from orbithash.index.addresses import open_folder

USER = "nobody"  # the tests may run as root, to whom nothing is forbidden
N_MEMORY, N_FULL, N_WRITERS, N_OUTAGES = 6, 12, 6, 2
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")


@pytest.fixture
def place(tmp_path):
    """A folder with images, a run and a features file, which other users may enter."""
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    coloured(tmp_path / "photos", classes=4, per_class=10)
    image_run(tmp_path / "run")
    write_clouds(tmp_path / "clouds.npz")
    return tmp_path


def index_command(place, out):
    return ("index", place / "run", place / "photos", "--out", out)


def paths_in(index):
    with open_folder(index, "a test") as opened:
        assert opened.check() == []
        return sorted(note.path for items in opened.iterate() for note in items.metadata)


def run(zygote, command, fault, output):
    output.unlink(missing_ok=True)
    process = zygote.command(*command, output=output, fault=fault)
    return process.wait(), process.text()


@needs_root
def test_a_folder_without_permission_is_named_and_never_pruned(place, zygote, tally):
    output, open_place = place / "output", place / "open"
    output.touch()
    output.chmod(0o666)
    open_place.mkdir(mode=0o777)
    open_place.chmod(0o777)
    index, nobody = open_place / "i.orbit", Fault(user=USER)
    assert zygote.command(*index_command(place, index), output=output, fault=nobody).wait() == 0
    everything = paths_in(index)
    for forbidden in (0o000, 0o444):
        (place / "photos" / "1").chmod(forbidden)
        for command, message in (
            ((*index_command(place, index), "--prune"), "cannot tell whether 10 items are gone"),
            (
                ("train", place / "photos", "--bits", "8", "--out", open_place / "r"),
                "cannot list",
            ),
        ):
            output.write_text("")
            process = zygote.command(*command, output=output, fault=nobody)
            assert process.wait() == 2, process.text()
            assert message in process.text()
        assert paths_in(index) == everything
        tally.add("class folder without permission, index --prune and train")
    (place / "photos" / "1").chmod(0o755)
    open_place.chmod(0o555)
    (open_place / "i.orbit").chmod(0o555)
    output.write_text("")
    changed = zygote.command("index", "--remove", "3", "--out", index, output=output, fault=nobody)
    assert changed.wait() in (1, 2)
    assert "read-only" in changed.text()
    output.write_text("")
    search = zygote.command("search", index, "--like", "3", output=output, fault=nobody)
    assert search.wait() == 0, search.text()
    tally.add("read-only index, changed and searched")


@needs_root
def test_a_disk_that_fills_up_leaves_an_index_as_it_was(place, zygote, tally):
    disk = place / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a file system cannot be mounted here")
    try:
        create_index(disk / "i.orbit", N_BITS).close()
        filler = disk / "filler"
        filler.write_bytes(bytes(1_500_000))
        rng, stored, failed = random.Random(0), 0, 0
        while failed < N_FULL:
            failure = None
            with open_index(disk / "i.orbit") as index:
                ids, batch = np.arange(stored, stored + BATCH), stored // BATCH
                try:
                    index.add(ids, batch_codes(batch), batch_metadata(batch))
                    stored += BATCH
                except HashingError as error:
                    failure = str(error)
            if failure is not None:
                assert "free some space" in failure or "check the disk" in failure
                failed += 1
                os.truncate(filler, max(0, filler.stat().st_size - rng.randint(1, 100_000)))
            with open_folder(disk / "i.orbit", "a test") as index:
                assert index.check() == []
                assert len(index) == stored
        assert stored > 1000
        tally.add("full disk while an index is changed", tried=failed, acknowledged=stored // BATCH)
        with pytest.raises(OSError, match="No space left"):
            (disk / "rest").write_bytes(bytes(3 << 20))
        new = index_command(place, disk / "new.orbit")
        assert run(zygote, new, Fault(), place / "output")[0] == 1
        assert not (disk / "new.orbit").exists()
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("change", ["removed", "cut", "replaced"])
def test_images_that_change_while_they_are_indexed_are_reported_and_indexed_next_time(
    place, zygote, tally, change, monkeypatch
):
    import orbithash

    monkeypatch.setattr("orbithash.retrieval.indexing.BATCH", 4)
    files = sorted((place / "photos").rglob("*.png"))
    rng = random.Random(0)

    def disturb(done, total):
        file = rng.choice(files)
        if change == "removed":
            file.unlink(missing_ok=True)
        elif change == "cut":
            file.write_bytes(file.read_bytes()[:40])
        else:
            shutil.copy(rng.choice(files), file)
        tally.add("image removed, cut or replaced while it is indexed")

    encoder = orbithash.load(place / "run")
    with orbithash.open_index(place / "i.orbit", encoder=encoder) as index:
        first = index.add_images(place / "photos", progress=disturb)
        assert first.new + len(first.unreadable) == len(files)
        index.add_images(place / "photos", prune=True)
        readable = [file for file in files if file.exists() and file.stat().st_size > 40]
        images = orbithash.data.all_images(place / "photos")
        again = index.add_images(place / "photos")
        assert (again.new, again.changed, again.gone) == (0, 0, {}) or change == "cut"
        stored = {
            note.path: code.tobytes()
            for items in index.iterate()
            for note, code in zip(items.metadata, items.codes, strict=True)
        }
        assert {str(images.file(row)) for row in range(len(images))} >= stored.keys()
        if change != "cut":
            assert stored == {str(file): encoder.encode([file])[0].tobytes() for file in readable}
    paths_in(place / "i.orbit")


def test_two_processes_that_index_one_source_store_each_image_once(place, zygote, tally):
    rng = random.Random(0)
    for number in range(N_WRITERS):
        index = place / f"{number}.orbit"
        create = zygote.command(*index_command(place, index), output=place / "output")
        assert create.wait() == 0, create.text()
        with open_index(index) as opened:
            opened.remove(np.arange(0, 40, 2))
        outputs = [place / f"{number}-{each}" for each in "ab"]
        # One of them is killed in some of the rounds.
        faults = [Fault(below=index, kill_at=rng.randint(1, 40) if number % 2 else 0), Fault()]
        both = [
            zygote.command(*index_command(place, index), output=output, fault=fault)
            for output, fault in zip(outputs, faults, strict=True)
        ]
        codes = [process.wait() for process in both]
        assert codes[1] == 0, both[1].text()
        assert len(paths_in(index)) == len(set(paths_in(index))) == 40
        tally.add("two processes index one source, one of them killed or not")


def test_a_clock_that_runs_backwards_changes_nothing(place, zygote, tally):
    backwards = Fault(clock="backwards")
    train = (
        "train",
        place / "clouds.npz",
        "--bits",
        "8",
        "--epochs",
        "2",
        "--checkpoint-every",
        "0",
    )
    models = []
    for name, fault in (("right", Fault()), ("backwards", backwards)):
        out, index = place / f"{name}-run", place / f"{name}.orbit"
        for command in ((*train, "--out", out), index_command(place, index)):
            code, text = run(zygote, command, fault, place / "output")
            assert code == 0, text
            tally.add("clock that runs backwards, in train and index")
        models.append((out / "model.safetensors").read_bytes())
        assert len(paths_in(index)) == 40
    assert models[0] == models[1]


def test_too_little_memory_ends_a_command_and_loses_nothing(place, zygote, tally):
    index = place / "i.orbit"
    code, text = run(zygote, index_command(place, index), Fault(), place / "output")
    assert code == 0, text
    before = paths_in(index)
    coloured(place / "photos", classes=5, per_class=10)
    codes = []
    for megabytes in np.linspace(4, 120, N_MEMORY).astype(int).tolist():
        fault = Fault(address_space=megabytes << 20)
        code, text = run(zygote, index_command(place, index), fault, place / "output")
        assert "Traceback" not in text, text
        codes.append(code)
        assert set(paths_in(index)) >= set(before)
        tally.add("too little memory for index", acknowledged=len(before))
    assert any(codes)
    code, text = run(zygote, index_command(place, index), Fault(), place / "output")
    assert code == 0, text
    assert len(paths_in(index)) == 50


def test_milvus_goes_away_in_mid_insert_and_comes_back(tmp_path, zygote, tally, milvus_server):
    if not milvus_server.is_ours:
        pytest.skip("it must not kill a server that it did not start")
    collection, told = new_collection(), tmp_path / "told.txt"
    address = f"milvus:{milvus_server.address}/{collection}"
    create_index(address, N_BITS).close()
    first = 0
    for number in range(N_OUTAGES):
        writer = zygote.start(
            "index_writer:write_told", address, told, first, output=tmp_path / "output"
        )
        while last_stored_batch(told) < first + 1 + number:
            assert not writer.text(), writer.text()
        milvus_server.kill()
        assert writer.wait() == 1
        assert "ServerError" in writer.text()
        milvus_server.start()
        address = f"milvus:{milvus_server.address}/{collection}"
        with open_index(address) as index:
            n_batches = last_stored_batch(told) + 1
            np.testing.assert_array_equal(
                index.get(np.arange(n_batches * BATCH)).codes,
                np.concatenate([batch_codes(batch) for batch in range(n_batches)]),
            )
        first = n_batches
        (tmp_path / "output").unlink()
        tally.add("Milvus killed in mid-insert and restarted", acknowledged=n_batches)
