import errno

import pytest

from orbithash.errors import InputError, StorageError
from orbithash.files import whole_file


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
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    (tmp_path / "a").write_bytes(b"before")
    with pytest.raises(StorageError, match="No space left"), whole_file(tmp_path / "a") as file:
        file.write(b"after")
    assert (tmp_path / "a").read_bytes() == b"before"


def test_two_may_write_the_same_file_at_once(tmp_path):
    path = tmp_path / "kept.bin"
    with whole_file(path) as first, whole_file(path) as second:
        first.write(b"first")
        second.write(b"second")
    assert path.read_bytes() == b"first"  # it ended last
    assert list(tmp_path.iterdir()) == [path]
