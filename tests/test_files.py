import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orbithash.errors import InputError, StorageError
from orbithash.files import (
    output_folder,
    resumable_folder,
    whole_file,
    whole_folder,
    write_text,
)


def write(out, *, force=False, text="new"):
    with output_folder(out, contents={"page"}, force=force) as folder:
        (folder / "page").write_text(text)


def test_the_folder_appears_when_the_block_ends_well(tmp_path):
    out = tmp_path / "a" / "b"
    with output_folder(out, contents={"page"}, force=False) as folder:
        (folder / "page").write_text("new")
        assert not out.exists()
    assert (out / "page").read_text() == "new"
    assert [path.name for path in out.parent.iterdir()] == ["b"]


def test_a_failure_leaves_the_old_folder_as_it_was(tmp_path):
    def write_half():
        with output_folder(tmp_path / "out", contents={"page"}, force=True) as folder:
            (folder / "page").write_text("half")
            raise RuntimeError("full disk")

    write(tmp_path / "out", text="old")
    with pytest.raises(RuntimeError, match="full disk"):
        write_half()
    assert (tmp_path / "out" / "page").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_existing_folder_is_kept_unless_forced(tmp_path):
    write(tmp_path / "out", text="old")
    with pytest.raises(InputError, match="add --force"):
        write(tmp_path / "out")
    write(tmp_path / "out", force=True)
    assert (tmp_path / "out" / "page").read_text() == "new"


def test_an_empty_folder_may_be_filled(tmp_path):
    (tmp_path / "out").mkdir()
    write(tmp_path / "out")
    assert (tmp_path / "out" / "page").read_text() == "new"


def test_even_force_keeps_files_of_others(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"holds 'thesis.tex'"):
        write(tmp_path / "out", force=True)
    assert (tmp_path / "out" / "thesis.tex").read_text() == "years of work"


def test_a_file_is_not_a_folder(tmp_path):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(InputError, match="is not a folder"):
        write(tmp_path / "out", force=True)
    with pytest.raises(InputError, match="cannot write"):
        write(tmp_path / "out" / "inside")


def resumable(out, *, resume=False, force=False):
    return resumable_folder(
        out, contents={"page"}, state={"checkpoint"}, resume=resume, force=force
    )


def stop_with_a_checkpoint(out):
    with resumable(out) as folder:
        (folder / "checkpoint").write_text("half")
        raise KeyboardInterrupt


@pytest.mark.parametrize("has_state", [True, False])
def test_a_disk_that_is_full_at_the_end_leaves_the_state_and_says_how_to_continue(
    tmp_path, monkeypatch, has_state
):
    def write_until_full():
        with resumable(tmp_path / "out") as folder:
            if has_state:
                (folder / "checkpoint").write_text("half")
            (folder / "page").write_text("whole")
            monkeypatch.setattr("os.fsync", full)

    advice = "continue with --resume: .*out.partial is kept" if has_state else "and start again"
    with pytest.raises(StorageError, match=f"No space left .*{advice}"):
        write_until_full()
    assert [path.name for path in tmp_path.iterdir()] == ["out.partial"] * has_state
    monkeypatch.undo()
    if has_state:
        with resumable(tmp_path / "out", resume=True) as folder:
            assert (folder / "checkpoint").read_text() == "half"
        assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_is_on_disk_under_its_name_before_the_checkpoint_is_removed(tmp_path, monkeypatch):
    """The order of operations, as a power cut may come after any of them."""
    done = []
    fsync, unlink = os.fsync, Path.unlink

    def note_sync(descriptor):
        done.append(("sync", Path(f"/proc/self/fd/{descriptor}").readlink().name))
        fsync(descriptor)

    def note_unlink(path, **options):
        done.append(("remove", path.name))
        unlink(path, **options)

    with resumable(tmp_path / "out") as folder:
        (folder / "checkpoint").write_text("half")
        (folder / "page").write_text("whole")
        monkeypatch.setattr("os.fsync", note_sync)
        monkeypatch.setattr(Path, "unlink", note_unlink)
    # Files, their folder, the folder that holds it; then the checkpoint.
    assert done.index(("sync", "page")) < done.index(("sync", "out.partial"))
    assert done.index(("sync", "out.partial")) < done.index(("sync", tmp_path.name))
    assert done.index(("sync", tmp_path.name)) < done.index(("remove", "checkpoint"))


def test_a_file_and_its_name_are_on_disk_when_it_is_written(tmp_path, monkeypatch):
    synced = []
    fsync = os.fsync

    def note(descriptor):
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    monkeypatch.setattr("os.fsync", note)
    write_text(tmp_path / "file", "whole")
    assert [name.endswith(".unfinished") for name in synced] == [True, False]
    assert synced[-1] == tmp_path.name


def test_a_folder_with_a_checkpoint_is_kept_and_taken_up(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        stop_with_a_checkpoint(out)
    assert [path.name for path in tmp_path.iterdir()] == ["out.partial"]
    with pytest.raises(InputError, match="add --resume to continue it"), resumable(out):
        pass
    with resumable(out, resume=True) as folder:
        assert (folder / "checkpoint").read_text() == "half"
        (folder / ".checkpoint.1.unfinished").touch()
        (folder / "page").write_text("whole")
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "page"]


def test_with_force_an_unfinished_folder_starts_anew(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        stop_with_a_checkpoint(tmp_path / "out")
    with resumable(tmp_path / "out", force=True) as folder:
        assert not (folder / "checkpoint").exists()


def test_without_a_checkpoint_nothing_is_left(tmp_path):
    def write_half():
        with resumable(tmp_path / "out") as folder:
            (folder / "page").write_text("half")
            raise RuntimeError("full disk")

    with pytest.raises(RuntimeError, match="full disk"):
        write_half()
    assert list(tmp_path.iterdir()) == []


def test_a_finished_folder_is_replaced_only_when_the_new_one_is_whole(tmp_path):
    out = tmp_path / "out"
    write(out, text="old")
    with resumable(out, force=True) as folder:
        (folder / "page").write_text("new")
        assert (out / "page").read_text() == "old"
    assert (out / "page").read_text() == "new"


def test_what_came_to_the_folders_place_meanwhile_is_kept_and_so_is_what_was_made(tmp_path):
    out = tmp_path / "out"

    def write_while_somebody_else_does():
        with resumable(out) as folder:
            (folder / "page").write_text("made")
            out.mkdir()
            (out / "thesis.tex").write_text("years of work")

    with pytest.raises(InputError, match=r"the finished run is in .*out\.partial"):
        write_while_somebody_else_does()
    assert (out / "thesis.tex").exists()
    assert (tmp_path / "out.partial" / "page").read_text() == "made"


@pytest.mark.parametrize("force", [False, True])
def test_somebody_elses_folder_of_the_unfinished_name_is_kept(tmp_path, force):
    theirs = tmp_path / "out.partial" / "photo.jpg"
    theirs.parent.mkdir()
    theirs.touch()
    with (
        pytest.raises(InputError, match=r"holds 'photo.jpg'"),
        resumable(tmp_path / "out", force=force),
    ):
        pass
    assert theirs.exists()


def test_two_processes_do_not_write_to_one_folder(tmp_path):
    hold = (
        "import sys; from pathlib import Path; from orbithash.files import resumable_folder\n"
        "with resumable_folder(Path(sys.argv[1]), contents={'page'}, state={'checkpoint'},"
        " resume=False, force=False) as folder:\n"
        "    (folder / 'page').write_text('theirs')\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()"
    )
    command = [sys.executable, "-c", hold, str(tmp_path / "out")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as other:
        assert other.stdout.readline() == "held\n"
        for options in ({}, {"force": True}, {"resume": True}):
            with (
                pytest.raises(InputError, match="another process"),
                resumable(tmp_path / "out", **options),
            ):
                pass
        other.communicate()
    assert other.returncode == 0
    assert (tmp_path / "out" / "page").read_text() == "theirs"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["page"]


def test_a_file_appears_when_it_is_whole(tmp_path):
    with whole_file(tmp_path / "a") as file:
        file.write(b"all")
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a").read_bytes() == b"all"


def test_a_failure_leaves_what_was_there_and_nothing_else(tmp_path):
    (tmp_path / "a").write_bytes(b"before")
    with pytest.raises(ZeroDivisionError), whole_file(tmp_path / "a") as file:
        file.write(bytes(1 // 0))
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"before"]


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(InputError, match="none/a: No such file"), whole_file(tmp_path / "none/a"):
        pass


def test_a_full_disk_is_not_the_users_mistake(tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", full)
    (tmp_path / "a").write_bytes(b"before")
    with pytest.raises(StorageError, match="No space left"), whole_file(tmp_path / "a") as file:
        file.write(b"after")
    assert (tmp_path / "a").read_bytes() == b"before"


def full(descriptor):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_two_may_write_the_same_file_at_once(tmp_path):
    path = tmp_path / "kept.bin"
    with whole_file(path) as first, whole_file(path) as second:
        first.write(b"first")
        second.write(b"second")
    assert path.read_bytes() == b"first"  # it ended last
    assert list(tmp_path.iterdir()) == [path]


def test_a_whole_folder_is_renamed_when_the_block_ends_well(tmp_path):
    with whole_folder(tmp_path / "a" / "out") as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "page").write_text("new")
        assert not (tmp_path / "a" / "out").exists()
    assert (tmp_path / "a" / "out" / "sub" / "page").read_text() == "new"
    assert names_in(tmp_path / "a") == {"out"}


def test_a_whole_folder_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), whole_folder(tmp_path / "out") as folder:
        (folder / "page").write_bytes(bytes(1 // 0))
    assert names_in(tmp_path) == set()


def test_an_existing_folder_is_kept_unless_it_is_to_be_replaced(tmp_path):
    fill(tmp_path / "out", "old")
    with pytest.raises(FileExistsError):
        fill(tmp_path / "out", "new")
    assert (tmp_path / "out" / "page").read_text() == "old"
    assert names_in(tmp_path) == {"out"}
    fill(tmp_path / "out", "new", replace=True)
    assert (tmp_path / "out" / "page").read_text() == "new"
    assert names_in(tmp_path) == {"out"}


def test_a_failure_leaves_the_folder_that_was_to_be_replaced(tmp_path):
    fill(tmp_path / "out", "old")
    with pytest.raises(ZeroDivisionError), whole_folder(tmp_path / "out", replace=True) as folder:
        (folder / "page").write_bytes(bytes(1 // 0))
    assert (tmp_path / "out" / "page").read_text() == "old"
    assert names_in(tmp_path) == {"out"}


def test_the_old_folder_comes_back_if_the_new_one_cannot_be_renamed(tmp_path, monkeypatch):
    fill(tmp_path / "out", "old")
    rename, calls = Path.rename, []

    def second_fails(path, target):
        calls.append(target)
        if len(calls) == 2:
            raise OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", second_fails)
    with pytest.raises(OSError, match="Input/output error"):
        fill(tmp_path / "out", "new", replace=True)
    assert (tmp_path / "out" / "page").read_text() == "old"
    assert names_in(tmp_path) == {"out"}


def test_a_folder_whose_replacement_was_killed_between_two_renames_is_back(tmp_path):
    fill(tmp_path / "out", "old")
    subprocess.run([sys.executable, "-c", KILLED_AFTER_THE_FIRST_RENAME, tmp_path / "out"])
    assert not (tmp_path / "out").exists()
    fill(tmp_path / "out.x", "other")
    with pytest.raises(InputError, match="exists; add --force"):
        write(tmp_path / "out")
    assert (tmp_path / "out" / "page").read_text() == "old"
    assert names_in(tmp_path) == {"out", "out.x"}


KILLED_AFTER_THE_FIRST_RENAME = """
import os, sys
from pathlib import Path
from orbithash.files import whole_folder

rename = Path.rename
Path.rename = lambda path, target: (rename(path, target), os.kill(os.getpid(), 9))
with whole_folder(Path(sys.argv[1]), replace=True) as folder:
    (folder / "page").write_text("new")
"""


@pytest.mark.parametrize("name", ["out", "out [1]"])
def test_leftovers_of_dead_processes_are_removed_and_those_of_live_ones_kept(name, tmp_path):
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    dead, live = (f".{name}.{'0' * 16}.{number}.unfinished" for number in (ended.pid, os.getpid()))
    others = f".other.{'0' * 16}.{ended.pid}.unfinished"
    foreign = f".{name}.by-hand.unfinished"
    for leftover in (dead, live, others, foreign):
        fill(tmp_path / leftover, "half")
    fill(tmp_path / name, "new")
    assert names_in(tmp_path) == {name, live, others, foreign}


def fill(folder, text, **options):
    with whole_folder(folder, **options) as new:
        (new / "page").write_text(text)


def names_in(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}
