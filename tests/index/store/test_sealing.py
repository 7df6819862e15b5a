"""Sealed codes keep every promise of the index: after kills, with damage, on a full disk."""

import errno
import os
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from clean_processes import call
from orbithash.errors import DamagedIndexError, InputError, PathInUseError, StorageError
from orbithash.index import ExactIndex, Metadata, Where, create_index, open_index
from orbithash.index.addresses import open_folder
from orbithash.index.store import locks, sealing
from orbithash.index.store.database import FILE
from orbithash.index.store.segment import PAGE
from sealed_indexes import N_BITS, assert_nothing_lost, change, sealing_early


@pytest.mark.parametrize("n_bits", [48, 100])
def test_an_index_of_segments_and_blocks_does_what_one_in_memory_does(tmp_path, n_bits):
    """Random changes of both: ids in any order, removed and added again, sealed and merged."""
    rng = np.random.default_rng(n_bits)
    reference, index = ExactIndex(n_bits), create_index(tmp_path / "i.orbit", n_bits)
    pool, used = rng.permutation(20_000) - 8000, 0
    with sealing_early(many=200):
        for step in range(18):
            n = int(rng.integers(1, 400))
            match step % 6:
                case 0 | 3:
                    ids = pool[used : used + n]
                    notes = None if step % 4 else described(ids)
                    each(index, reference, "add", ids, random_codes(rng, n, n_bits), notes)
                    used += n
                case 1:
                    ids = np.unique(pool[rng.integers(0, used, n // 3 + 1)])
                    each(index, reference, "remove", ids)
                case 2:
                    ids = np.unique(pool[rng.integers(0, used, 30)])
                    codes = random_codes(rng, len(ids), n_bits)
                    each(index, reference, "update", ids, codes, described(ids))
                case 4:
                    index.close()
                    index = open_index(tmp_path / "i.orbit")
                case 5 if step > 6:
                    index.compact()
            assert_same(index, reference, rng)
        assert index.check() == []
        index.close()


def described(ids) -> list[Metadata]:
    return [Metadata(f"{i}.jpg", (f"class {i % 3}",), "photos" if i % 2 else "") for i in ids]


def random_codes(rng, n, n_bits):
    return np.packbits(rng.random((n, n_bits)) < 0.1, axis=1)  # many ties


def each(index, reference, name, *arguments):
    for one in (index, reference):
        getattr(one, name)(*arguments)


def assert_same(index, reference, rng):
    n_bits = reference.n_bits
    assert len(index) == len(reference)
    where = Where(labels=("class 1",))
    for queries in (random_codes(rng, 3, n_bits), rng.random((3, n_bits))):
        for k, filtered in ((1, None), (90, None), (7, where)):
            found, expected = (one.search(queries, k, filtered) for one in (index, reference))
            np.testing.assert_array_equal(found.ids, expected.ids)
            np.testing.assert_array_equal(found.distances, expected.distances)
        for found, expected in zip(
            index.within(queries, 9), reference.within(queries, 9), strict=True
        ):
            np.testing.assert_array_equal(found.ids, expected.ids)
    pairs = list(zip(index.iterate(333), reference.iterate(333), strict=True))
    for found, expected in pairs:
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_array_equal(found.codes, expected.codes)
        assert found.metadata == expected.metadata
    groups = [[group.ids.tolist() for group in one.duplicates(1)] for one in (index, reference)]
    assert groups[0] == groups[1]
    ids = np.concatenate([found.ids for found, _ in pairs] or [np.empty(0, np.int64)])
    sample = index.sample(40, seed=3)
    chosen = np.sort(np.random.default_rng(3).choice(len(ids), min(40, len(ids)), replace=False))
    np.testing.assert_array_equal(sample.ids, ids[chosen])


@pytest.mark.parametrize("engine", ["exact-mih", "faiss"])
def test_engines_that_build_something_search_segments_too(tmp_path, engine, monkeypatch):
    if engine == "faiss":
        pytest.importorskip("faiss")
    monkeypatch.setattr("orbithash.index.memory.MIN_TABLE_CODES", 0)
    monkeypatch.setattr("orbithash.index.code_table.FEW_PAIRS", 0)
    codes = np.random.default_rng(0).integers(0, 9, (700, 4), dtype=np.uint8)
    with sealing_early(many=100), create_index(tmp_path / "i.orbit", 32) as index:
        index.add(np.arange(0, 800, 2), codes[:400])
        index.add(np.arange(1, 401, 2), codes[400:600])
        index.add(np.arange(1000, 1050), codes[600:650])
        index.remove(np.arange(0, 60, 2))
        with open_index(tmp_path / "i.orbit", engine=engine) as searched:
            for k in (1, 20):
                found, expected = searched.search(codes[:5], k), index.search(codes[:5], k)
                np.testing.assert_array_equal(found.ids, expected.ids)
            assert searched.stats().count == 620


@pytest.mark.parametrize(
    "moments",
    [
        pytest.param((90, 200, 330, 20, 410), id="few"),
        pytest.param(range(40, 1540, 30), marks=pytest.mark.slow, id="fifty"),
    ],
)
def test_a_process_killed_while_it_changes_and_seals_loses_nothing(tmp_path, moments):
    folder, told = tmp_path / "index.orbit", tmp_path / "told.txt"
    create_index(folder, N_BITS).close()
    first = 0
    for moment in moments:
        writer = call(change, str(folder), told, first, moment)
        writer.join()
        assert writer.exitcode == -signal.SIGKILL
        with open_index(folder) as index:
            first = assert_nothing_lost(index, told, before=first)
            if moment % 4 == 0:
                assert index.check() == []
    assert first > 2
    assert list(folder.glob("codes-*.segment"))
    with sealing_early(), open_index(folder) as index:
        index.compact()  # removes what the killed ones have left
    assert len(list(folder.glob("*codes-*"))) == 1


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A closed index of two segments and a block, with and without metadata."""
    folder = tmp_path_factory.mktemp("original") / "birds.orbit"
    rng = np.random.default_rng(0)
    with sealing_early(many=400), create_index(folder, 48, encoder=b"an encoder") as index:
        index.add(np.arange(400), random_codes(rng, 400, 48))
        ids = rng.permutation(np.arange(1000, 3000))[:600]
        index.add(ids, random_codes(rng, 600, 48), described(ids))
        index.close()
    with open_index(folder) as index:
        index.add(np.arange(5000, 5050), random_codes(rng, 50, 48), described(range(5000, 5050)))
        index.remove([3, 5001, *ids[:4]])
    assert len(list(folder.glob("codes-*"))) == 2
    return folder


@pytest.fixture
def folder(original, tmp_path):
    return shutil.copytree(original, tmp_path / "birds.orbit")


def content(folder):
    with open_index(folder) as index:
        items = list(index.iterate(200))
        ids = np.concatenate([part.ids for part in items])
        found = index.search(items[0].codes[:3], k=8)
        return (
            ids.tolist(),
            b"".join(part.codes.tobytes() for part in items),
            [note for part in items for note in part.metadata],
            found.ids.tolist(),
            index.known("photos"),
            index.label_counts(),
            len(index),
        )


def test_a_flipped_bit_in_any_file_is_detected_or_does_no_harm(folder):
    expected = content(folder)
    files = [folder / FILE, *sorted(folder.glob("codes-*"))]
    rng, detected, found_by_check = np.random.default_rng(1), dict.fromkeys(files, 0), 0
    for file in files:
        whole = file.read_bytes()
        for position in rng.integers(0, 8 * len(whole), 24).tolist():
            damaged = bytearray(whole)
            damaged[position // 8] ^= 1 << position % 8
            file.write_bytes(damaged)
            try:
                assert content(folder) == expected
            except InputError:
                detected[file] += 1
                try:
                    with open_folder(folder, "a test", unchecked=True) as index:
                        found_by_check += bool(index.check())
                except InputError:
                    found_by_check += 1
            for suffix in ("-wal", "-shm"):
                (folder / f"{FILE}{suffix}").unlink(missing_ok=True)
        file.write_bytes(whole)
    assert all(detected.values())
    assert found_by_check == sum(detected.values())


@pytest.mark.parametrize("table", ["blocks", "items", "segments", "removed"])
def test_rows_that_a_damaged_page_hides_are_missed(folder, table):
    with closing(sqlite3.connect(folder / FILE)) as connection:
        connection.execute(f"DELETE FROM {table} WHERE rowid = (SELECT max(rowid) FROM {table})")
        connection.commit()
    with pytest.raises(DamagedIndexError, match=r"is damaged: .*; restore it"):
        content(folder)
    with open_folder(folder, "a test", unchecked=True) as index:
        assert index.check()


@pytest.mark.parametrize("change", ["missing", "short", "other header"])
def test_a_segment_that_is_not_whole_is_named_at_opening(folder, change):
    file = max(folder.glob("codes-*"), key=lambda path: path.stat().st_size)
    whole = file.read_bytes()
    file.unlink()
    if change == "short":
        file.write_bytes(whole[:-1])
    if change == "other header":
        file.write_bytes(whole[:PAGE].replace(b"48", b"40", 1) + whole[PAGE:])
    with pytest.raises(DamagedIndexError, match=file.name):
        open_index(folder)


def test_intact_items_of_a_damaged_segment_can_be_saved(folder, caplog):
    expected = content(folder)
    file = max(folder.glob("codes-*"), key=lambda path: path.stat().st_size)
    damaged = bytearray(file.read_bytes())
    damaged[PAGE + 100] ^= 1
    file.write_bytes(damaged)
    with open_index(folder) as index:
        with pytest.raises(DamagedIndexError, match=rf"{file.name} has codes 0 to \d+ that are"):
            index.search(np.zeros((1, 6), np.uint8), k=1)
        saved = [i for part in index.undamaged() for i in part.ids.tolist()]
        problems = index.check()
    assert 0 < len(saved) < len(expected[0])
    assert set(saved) < set(expected[0])
    assert [problem for problem in problems if file.name in problem]
    file.unlink()
    with open_folder(folder, "a test", unchecked=True) as index:
        assert [i for part in index.undamaged() for i in part.ids.tolist()] == saved


@pytest.mark.parametrize("moment", ["writing", "renaming", "entering"])
def test_a_full_disk_while_sealing_loses_nothing(folder, monkeypatch, moment):
    expected = content(folder)

    def fail(*arguments, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fail_late(*arguments, **options):
        raise StorageError("the disk is full")

    with open_index(folder) as index:
        with monkeypatch.context() as patch:
            if moment == "writing":
                patch.setattr(sealing.SegmentWriter, "finish", fail)
            elif moment == "renaming":
                patch.setattr(Path, "replace", fail)
            else:
                patch.setattr("orbithash.index.store.manifest.Manifest.add", fail_late)
            with pytest.raises(StorageError):
                index.compact()
        assert len(index) == expected[-1]
        assert len(list(folder.glob("*codes-*"))) == 2  # and nothing unfinished
        index.compact()
    assert content(folder) == expected


def test_a_failure_in_the_background_is_logged_and_nothing_is_lost(tmp_path, monkeypatch, caplog):
    def fail(*arguments):
        raise StorageError("the disk is full")

    monkeypatch.setattr(sealing.Sealing, "_seal_blocks", fail)
    with sealing_early(), create_index(tmp_path / "i.orbit", 16) as index:
        index.add(np.arange(600), np.zeros((600, 2), np.uint8))
    with open_index(tmp_path / "i.orbit") as index:
        assert len(index) == 600
    assert "codes stay in the database until they can be sealed: the disk is full" in caplog.text


def test_readers_see_one_state_while_others_seal_and_merge(tmp_path):
    codes = np.random.default_rng(0).integers(0, 256, (3000, 4), dtype=np.uint8)
    with sealing_early(), create_index(tmp_path / "i.orbit", 32) as writer:
        writer.add(np.arange(100), codes[:100])
        with open_index(tmp_path / "i.orbit") as reader, open_index(tmp_path / "i.orbit") as late:
            for start in range(100, 3000, 290):
                writer.add(np.arange(start, start + 290), codes[start : start + 290])
                writer.remove([start])
                found = reader.search(codes[start + 1 : start + 2], k=3)
                assert found.ids[0, 0] == start + 1
                assert len(reader) == len(writer)
            writer.compact()
            # Its segments are gone from the folder, and it has not looked since.
            (ball,) = late.within(codes[:1], radius=32)
            assert len(ball.ids) == len(writer)


def test_a_segment_that_is_merged_away_while_it_is_opened_is_looked_up_again(folder, monkeypatch):
    opened, merged = [], []

    def open_too_late(files, info):
        if not merged:
            merged.append(True)
            with monkeypatch.context() as patch:
                patch.undo()
                with open_folder(folder, "a test") as other:
                    other.compact()
        opened.append(info.file)
        return get(files, info)

    from orbithash.index.store.manifest import OpenSegments

    expected, get = content(folder), OpenSegments.get
    monkeypatch.setattr(OpenSegments, "get", open_too_late)
    assert content(folder) == expected
    assert len(set(opened)) > 2  # those that are gone, and what replaced them


def test_codes_without_metadata_take_no_rows_and_ids_of_a_range_no_bytes(tmp_path):
    with sealing_early(many=100), create_index(tmp_path / "i.orbit", 64) as index:
        before = (tmp_path / "i.orbit" / FILE).stat().st_size
        index.add(codes=np.zeros((20_000, 8), np.uint8))
        (file,) = (tmp_path / "i.orbit").glob("codes-*")
        assert file.stat().st_size < 8.5 * 20_000 + 3 * PAGE
        assert index._writer.execute("SELECT count(*) FROM items").fetchone() == (0,)
        assert index.stats().memory_bytes == 8 * 20_000
        assert index.get([19_999]).metadata == (Metadata(),)
    assert (tmp_path / "i.orbit" / FILE).stat().st_size == before


def test_codes_arrive_in_batches_and_are_stored_together(tmp_path):
    codes = np.random.default_rng(0).integers(0, 256, (1000, 2), dtype=np.uint8)
    with create_index(tmp_path / "i.orbit", 16) as index:
        index.add([7], codes[:1])
        assert index.add_codes(1000, np.array_split(codes, 7), file=("a.npy", "1")) == 8
        np.testing.assert_array_equal(index.get(np.arange(8, 1008)).codes, codes)
        assert index.known_files() == {"a.npy": ("1", 1000)}
        with pytest.raises(InputError, match="got 500 codes for 1000 ids"):
            index.add_codes(1000, [codes[:500]])
        with pytest.raises(InputError, match="id 7 is stored already"):
            index.add_codes(2, [codes[:2]], ids=np.array([5, 7]))
        assert len(index) == 1001
    assert len(list((tmp_path / "i.orbit").glob("*codes-*"))) == 1


def test_a_path_of_a_source_is_stored_once(tmp_path):
    with create_index(tmp_path / "i.orbit", 16) as index:
        codes = np.zeros((2, 2), np.uint8)
        notes = [Metadata("a.jpg", source="photos"), Metadata("b.jpg", source="photos")]
        index.add([1, 2], codes, notes)
        for again in (notes[:1], [Metadata("c.jpg", source="photos")] * 2):
            with pytest.raises(PathInUseError, match=r"\.jpg of photos is stored already"):
                index.add(codes=codes[: len(again)], metadata=again)
        index.update([1], codes[:1], notes[:1])
        index.remove([2])
        index.add(codes=codes[:1], metadata=notes[1:])
        index.add(codes=codes, metadata=[Metadata("a.jpg")] * 2)  # of no source
        assert index.known("photos") == {"a.jpg": (1, ""), "b.jpg": (3, "")}


def test_an_index_of_format_2_is_read_as_it_is_and_upgraded_by_the_first_change(tmp_path):
    old = as_format_2(tmp_path / "old.orbit")
    before = (old / FILE).read_bytes()
    with open_index(old) as index:
        codes = index.get(np.arange(300)).codes
        assert (len(index), index.next_id(), index.n_bits) == (300, 300, 16)
        assert index.search(codes[7:8], k=300).ids.shape == (1, 300)
        assert index.known("photos")["7.jpg"] == (7, "1 2")
        assert index.label_counts() == {"a": 100, "b": 100, "c": 100}
        assert index.check() == []
    assert (old / FILE).read_bytes() == before
    with open_index(old) as reader, open_index(old) as index:
        assert len(reader) == 300
        index.remove([5])
        index.add(codes=codes[:1])
        assert (len(index), len(reader)) == (300, 300)
        assert 300 in reader.search(codes[:1], k=300).ids
        with pytest.raises(PathInUseError):
            index.add(codes=codes[:1], metadata=[Metadata("7.jpg", source="photos")])
        index.compact()
        assert index.check() == []
        np.testing.assert_array_equal(reader.get([0, 7]).codes, codes[[0, 7]])
        assert reader.get([7]).metadata[0].labels == ("b",)


OLD_TABLES = """
CREATE TABLE old (first INTEGER PRIMARY KEY, version INTEGER NOT NULL, count INTEGER NOT NULL,
    payload BLOB NOT NULL, checksum INTEGER NOT NULL);
INSERT INTO old SELECT first, version, count, payload, checksum FROM blocks;
DROP TABLE blocks;
ALTER TABLE old RENAME TO blocks;
CREATE TABLE old (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
INSERT INTO old SELECT number, name FROM sources;
DROP TABLE sources;
ALTER TABLE old RENAME TO sources;
DROP TABLE segments;
DROP TABLE removed;
DROP TABLE paths;
DELETE FROM facts WHERE name LIKE 'n\\__%' ESCAPE '\\' AND name <> 'n_bits';
PRAGMA user_version = 2;
PRAGMA journal_mode = DELETE;
PRAGMA journal_mode = WAL;
"""


def as_format_2(folder) -> Path:
    """Write an index of 300 items as version 2 of the format has it."""
    codes = np.random.default_rng(0).integers(0, 256, (300, 2), dtype=np.uint8)
    notes = [
        Metadata(f"{i}.jpg", ("abc"[i % 3],), "photos" if i % 2 else "", "1 2") for i in range(300)
    ]
    with create_index(folder, 16) as index:
        index.add(codes=codes, metadata=notes)
    with closing(sqlite3.connect(folder / FILE, isolation_level=None)) as connection:
        connection.executescript(OLD_TABLES)
    return folder


def test_a_copy_is_one_state_while_others_change_the_index(folder, tmp_path, monkeypatch):
    expected = content(folder)
    with open_index(folder) as index:
        index.copy_to(tmp_path / "copy.orbit")
        with pytest.raises(InputError, match="exists"):
            index.copy_to(tmp_path / "copy.orbit")
        index.remove([1])
    assert content(tmp_path / "copy.orbit") == expected
    with open_index(tmp_path / "copy.orbit") as copy:
        assert copy.encoder() == b"an encoder"
        assert copy.check() == []


def test_only_one_connection_writes_at_a_time_where_sqlite_may_fail_at_it(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "NEEDS_LOCK", True)
    monkeypatch.setattr(locks, "WAIT", 0.01)
    with create_index(tmp_path / "i.orbit", 16) as index:
        with locks.locked(tmp_path / "i.orbit", locks.WRITERS, wait=0) as is_ours:
            assert is_ours
            with pytest.raises(StorageError, match="another process has been writing"):
                index.remove([1])
        assert index.remove([1]) == 0
