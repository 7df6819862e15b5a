"""An index on disk: damage is reported, and nothing that was stored is lost."""

import errno
import os
import shutil
import sqlite3
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest

from orbithash.errors import CodeLengthError, DamagedIndexError, InputError, StorageError
from orbithash.index import Metadata, Where, create_index, open_index
from orbithash.index.store import copying as creation
from orbithash.index.store import database
from orbithash.index.store.database import FILE
from orbithash.index.store.stored_index import StoredIndex


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A closed index of 900 items with an encoder."""
    folder = tmp_path_factory.mktemp("original") / "birds.orbit"
    with create_index(folder, 48, encoder=b"an encoder") as index:
        index.add(*items(range(900)))
    return folder


@pytest.fixture
def folder(original, tmp_path):
    return shutil.copytree(original, tmp_path / "birds.orbit")


def items(ids, n_bits=48):
    ids = np.array(list(ids))
    codes = np.stack(
        [np.random.default_rng(i).integers(0, 256, n_bits // 8, dtype=np.uint8) for i in ids]
    )
    notes = [
        Metadata(f"{i}.jpg", (f"class {i % 5}",), "photos", "1 2", {"odd": i % 2})
        for i in ids.tolist()
    ]
    return ids, codes, notes


# Results from the tables of metadata alone, without reading the items.
FROM_METADATA = {
    "labels": lambda index: found_where(index, Where(labels=("class 1", "class 2"))),
    "fields": lambda index: found_where(index, Where(fields={"odd": 1})),
    "both": lambda index: found_where(index, Where(labels=("class 1",), fields={"odd": 1})),
    "known": lambda index: index.known("photos"),
    "counts": lambda index: index.label_counts(),
}


def found_where(index, where):
    return index.search(items([1])[1], k=900, where=where).ids.tolist()


def content(folder):
    """Return everything that can be read from an index."""
    with open_index(folder) as index:
        stored = list(index.iterate(256))
        ids = np.concatenate([part.ids for part in stored])
        codes = np.concatenate([part.codes for part in stored])
        notes = [astuple(note) for part in stored for note in part.metadata]
        found = index.search(codes[:3], k=5)
        return (
            ids.tolist(),
            codes.tobytes(),
            notes,
            found.ids.tolist(),
            *(query(index) for query in FROM_METADATA.values()),
            index.encoder(),
            index.n_bits,
            len(index),
        )


def test_a_reopened_index_holds_what_was_stored(folder):
    ids, codes, notes = items(range(900))
    with open_index(folder) as index:
        stored = index.get(ids)
        assert index.encoder() == b"an encoder"
        assert index.next_id() == 900
        assert index.known("photos")["7.jpg"] == (7, "1 2")
        assert index.known("elsewhere") == {}
    np.testing.assert_array_equal(stored.codes, codes)
    assert list(stored.metadata) == notes


def test_ids_in_any_order_are_stored_in_many_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("orbithash.index.store.blocks.BLOCK", 64)
    rng = np.random.default_rng(0)
    ids = rng.permutation(1000) - 200
    codes = rng.integers(0, 256, (len(ids), 4), dtype=np.uint8)
    with create_index(tmp_path / "index.orbit", 32) as index:
        for part in np.array_split(np.arange(len(ids)), 7):
            index.add(ids[part], codes[part])
        assert index.remove(ids[::3]) == len(ids[::3])
        left = np.delete(np.arange(len(ids)), np.s_[::3])
        np.testing.assert_array_equal(index.get(ids[left]).codes, codes[left])
    with open_index(tmp_path / "index.orbit") as index:
        order = left[np.argsort(ids[left])]
        stored = list(index.iterate())
        np.testing.assert_array_equal(np.concatenate([part.ids for part in stored]), ids[order])
        found = np.concatenate([part.codes for part in stored])
        np.testing.assert_array_equal(found, codes[order])


def test_a_reader_sees_the_changes_of_another_connection(folder):
    query = items([3])[1]
    with open_index(folder) as reader, open_index(folder) as writer:
        assert reader.search(query, k=1).ids[0, 0] == 3
        writer.remove(np.array([3]))
        assert reader.search(query, k=1).ids[0, 0] != 3
        writer.add(np.array([1000]), query, [Metadata(labels=("new",))])
        assert reader.search(query, k=1).ids[0, 0] == 1000
        assert reader.search(query, k=5, where=Where(labels=("new",))).ids.tolist() == [[1000]]
        assert len(reader) == 900


@pytest.mark.parametrize("where", [None, Where(labels=("class 3",)), Where(fields={"odd": 1})])
def test_a_search_sees_one_state_while_other_threads_change_it(folder, monkeypatch, where):
    ids, code, _ = items([3])
    refresh = StoredIndex._refresh

    def refresh_and_fall_behind(index, where):
        state = refresh(index, where)
        # What another thread may do before this one compares codes.
        monkeypatch.setattr(StoredIndex, "_refresh", refresh)
        index.update(ids, ~code)
        index.search(code, k=1)
        monkeypatch.setattr(StoredIndex, "_refresh", refresh_and_fall_behind)
        return state

    with open_index(folder) as index:
        monkeypatch.setattr(StoredIndex, "_refresh", refresh_and_fall_behind)
        assert index.search(code, k=1, where=where).ids.tolist() == [[3]]
    with open_index(folder) as index:
        monkeypatch.setattr(StoredIndex, "_refresh", refresh)
        index.update(*items([3]))
        monkeypatch.setattr(StoredIndex, "_refresh", refresh_and_fall_behind)
        assert index.within(code, radius=0, where=where)[0].ids.tolist() == [3]


def test_ids_are_not_assigned_again(folder):
    with open_index(folder) as index:
        index.remove(np.arange(890, 900))
        assert index.next_id() == 900


def test_a_flipped_bit_is_detected_or_does_no_harm(folder):
    """Any result is the one that was written, or an error."""
    expected, file = content(folder), folder / FILE
    whole = file.read_bytes()
    detected = 0
    for position in np.random.default_rng(0).integers(0, 8 * len(whole), 60).tolist():
        damaged = bytearray(whole)
        damaged[position // 8] ^= 1 << position % 8
        file.write_bytes(damaged)
        try:
            assert content(folder) == expected
        except InputError:
            detected += 1
        remove_leftovers(folder)
    assert detected > 20


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM labels WHERE id = 10",
        "UPDATE labels SET id = 11 WHERE id = 10",
        "UPDATE labels SET label = 'class 0' WHERE id = 11",
        "UPDATE label_sums SET total = total + 1 WHERE label = 'class 0'",
        "DELETE FROM label_sums WHERE label = 'class 0'",
    ],
)
def test_a_damaged_table_of_labels_is_detected_by_filters(folder, damage):
    query = items([3])[1]
    with sqlite3.connect(folder / FILE) as connection:
        connection.execute(damage)
    connection.close()
    with open_index(folder) as index:
        with pytest.raises(DamagedIndexError, match="items with the label 'class 0' is not as"):
            index.search(query, k=1, where=Where(labels=("class 0",)))
        found = index.search(query, k=1, where=Where(labels=("class 3",)))
        assert found.ids.tolist() == index.search(query, k=1).ids.tolist() == [[3]]


def test_filters_find_items_that_were_removed_and_added_again(folder):
    ids, codes, notes = items(range(0, 900, 5))
    with open_index(folder) as index:
        index.remove(ids)
        where = Where(labels=("class 0",))
        assert index.search(codes[:1], k=5, where=where).ids.shape == (1, 0)
        index.add(ids, codes, notes)
        index.update(ids[:9], codes[:9], [Metadata(labels=("new", "new"))] * 9)
        assert index.search(codes[20:21], k=1, where=where).ids.tolist() == [[100]]
        assert (
            len(index.within(codes[:1], 48, where=Where(labels=("new", "class 0")))[0].ids) == 180
        )


@pytest.mark.parametrize("name", FROM_METADATA)
def test_results_from_damaged_metadata_are_as_written_or_errors(folder, name):
    """Each alone, because reading the items would detect every flipped bit."""
    file, query = folder / FILE, FROM_METADATA[name]
    with open_index(folder) as index:
        expected = query(index)
    whole = file.read_bytes()
    offsets = [at for word in (b"class", b'"odd"', b".jpg") for at in occurrences(word, whole)]
    detected = 0
    for at in np.random.default_rng(0).choice(offsets, 25, replace=False).tolist():
        damaged = bytearray(whole)
        damaged[at + 1] ^= 1
        file.write_bytes(damaged)
        try:
            with open_index(folder) as index:
                found = query(index)
            if name in ("fields", "both"):
                # A row that no longer matches the filter is skipped.
                assert set(found[0]) <= set(expected[0])
            else:
                assert found == expected
        except DamagedIndexError:
            detected += 1
        remove_leftovers(folder)
    assert detected > 0


def occurrences(word, content):
    return [at for at in range(len(content)) if content.startswith(word, at)]


def test_intact_items_of_a_damaged_index_can_be_saved(folder, monkeypatch, caplog):
    monkeypatch.setattr("orbithash.index.store.blocks.BLOCK", 64)
    with open_index(folder) as index:
        index.add(*items(range(900, 1100)))
    with sqlite3.connect(folder / FILE) as connection:
        blocks = "SELECT first, count FROM blocks ORDER BY first DESC LIMIT 1 OFFSET 1"
        first, count = connection.execute(blocks).fetchone()
        connection.execute("UPDATE blocks SET payload = zeroblob(9) WHERE first = ?", (first,))
        connection.execute("UPDATE items SET path = 'x' WHERE id = 17")
    connection.close()
    with open_index(folder) as index:
        with pytest.raises(DamagedIndexError, match=f"codes of {count} items from id {first} on"):
            index.search(items([3])[1], k=1)
        with pytest.raises(DamagedIndexError, match="metadata of item 17"):
            index.get(np.array([17]))
        saved = [i for part in index.undamaged() for i in part.ids.tolist()]
        stored = index.get(np.array([3]))
    assert saved == [i for i in range(1100) if i != 17 and not first <= i < first + count]
    np.testing.assert_array_equal(stored.codes, items([3])[1])
    assert len(caplog.messages) == 2


def test_a_truncated_index_is_reported_as_damaged(folder):
    file = folder / FILE
    whole = file.read_bytes()
    for length in (0, 50, 5000, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        with pytest.raises(DamagedIndexError, match=r"is damaged: .*; restore it"):
            content(folder)
        remove_leftovers(folder)
    file.write_bytes(whole)
    assert len(content(folder)[0]) == 900


def test_a_damaged_encoder_is_detected_and_codes_are_still_searched(folder):
    (folder / "model.safetensors").write_bytes(b"an encodes")
    with open_index(folder) as index:
        with pytest.raises(DamagedIndexError, match=r"model\.safetensors is not as written"):
            index.encoder()
        assert index.search(items([3])[1], k=1).ids[0, 0] == 3


def test_an_index_of_another_format_is_refused(folder):
    connection = sqlite3.connect(folder / FILE)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(InputError, match="has format 99, and this version of orbithash reads"):
        open_index(folder)


def test_folders_and_files_that_orbithash_did_not_write_are_refused(tmp_path):
    with pytest.raises(InputError, match="there is no index"):
        open_index(tmp_path / "none")
    with pytest.raises(InputError, match="is no index: it holds no"):
        open_index(tmp_path)
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("CREATE TABLE t (a)")
    connection.close()
    with pytest.raises(DamagedIndexError, match="was not written by orbithash"):
        open_index(tmp_path)
    with pytest.raises(InputError, match="exists"):
        create_index(tmp_path, 16)


def test_codes_of_another_length_change_nothing(folder):
    before = content(folder)
    with open_index(folder) as index, pytest.raises(CodeLengthError):
        index.add(*items(range(2000, 2010), n_bits=64))
    assert content(folder) == before


def test_a_full_disk_leaves_everything_as_it_was(folder):
    before = content(folder)
    with open_index(folder) as index:
        # To SQLite, a limit on pages is a full disk.
        (pages,) = index._writer.execute("PRAGMA page_count").fetchone()
        index._writer.execute(f"PRAGMA max_page_count = {pages + 3}")
        with pytest.raises(StorageError, match="is full; nothing of this was stored"):
            index.update(*items(range(500, 3000)))
        assert index.search(items([3])[1], k=1).ids[0, 0] == 3
    assert content(folder) == before


def test_a_limit_on_file_sizes_leaves_everything_as_it_was(folder):
    """The same with an error of the operating system."""
    before = content(folder)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            import resource
            import signal

            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            with open_index(folder) as index:
                resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
                try:
                    index.update(*items(range(500, 3000)))
                except StorageError:
                    code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert content(folder) == before


def test_a_failed_creation_leaves_nothing(tmp_path, monkeypatch):
    def fail(connection, folder):
        raise StorageError("no room")

    monkeypatch.setattr("orbithash.index.store.copying.writing", fail)
    with pytest.raises(StorageError):
        create_index(tmp_path / "index.orbit", 16)
    assert list(tmp_path.iterdir()) == []


def test_of_two_concurrent_creations_the_second_is_refused(tmp_path, monkeypatch):
    target, write = tmp_path / "index.orbit", creation.write_store

    def write_and_come_second(*arguments):
        write(*arguments)
        monkeypatch.setattr(creation, "write_store", write)
        create_index(target, 32).close()

    monkeypatch.setattr(creation, "write_store", write_and_come_second)
    with pytest.raises(InputError, match=r"index\.orbit exists; open it"):
        create_index(target, 16)
    with open_index(target) as index:
        assert index.n_bits == 32
    assert list(tmp_path.iterdir()) == [target]


def test_an_index_cannot_be_created_in_a_file(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match=r"cannot write .*index\.orbit: "):
        create_index(tmp_path / "file" / "index.orbit", 16)


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, StorageError), (errno.EACCES, InputError)]
)
def test_an_encoder_that_cannot_be_written_is_one_clear_error(tmp_path, monkeypatch, number, kind):
    def fail(path, content):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(kind, match=rf"cannot write .*index\.orbit: {os.strerror(number)}; "):
        create_index(tmp_path / "index.orbit", 16, encoder=b"an encoder")
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_not_valid_text_is_refused(folder):
    ids, codes, _ = items([2000])
    with open_index(folder) as index, pytest.raises(InputError, match="rename the file"):
        index.add(ids, codes, [Metadata(path="\udcff.jpg")])
    assert len(content(folder)[0]) == 900


@pytest.mark.parametrize(
    "use",
    [
        len,
        lambda index: index.add(*items([2000])),
        lambda index: index.search(items([3])[1], k=1),
        lambda index: index.get(np.array([3])),
        lambda index: index.known("photos"),
        lambda index: index.stats(),
    ],
)
def test_a_closed_index_is_reported_as_closed_and_not_as_damaged(folder, use):
    index = open_index(folder)
    index.close()
    with pytest.raises(InputError, match="is closed; open it again") as raised:
        use(index)
    assert not isinstance(raised.value, DamagedIndexError)


def remove_leftovers(folder) -> None:
    for suffix in ("-wal", "-shm"):
        (folder / f"{FILE}{suffix}").unlink(missing_ok=True)


def test_a_sample_is_random_without_repeats_and_follows_its_seed(tmp_path):
    with create_index(tmp_path / "birds.orbit", 16) as index:
        assert len(index.sample(3, seed=0)) == 0
        ids = np.arange(0, 4000, 2)
        codes = np.random.default_rng(0).integers(0, 256, (2000, 2), dtype=np.uint8)
        index.add(ids, codes, [Metadata(path=str(i)) for i in ids])
        once, again, other = (index.sample(50, seed=seed) for seed in (1, 1, 2))
        assert once.ids.tolist() == again.ids.tolist() != other.ids.tolist()
        assert len(set(once.ids.tolist())) == 50
        assert np.array_equal(once.codes, codes[once.ids // 2])
        assert [each.path for each in once.metadata] == [str(i) for i in once.ids]
        assert len(index.sample(5000, seed=0)) == 2000


def test_a_filter_restricts_samples_and_counts(folder):
    with open_index(folder) as index:
        where = Where(labels=("class 1", "class 3"))
        sample = index.sample(50, seed=0, where=where)
        assert len(sample) == 50
        assert {each.labels for each in sample.metadata} == {("class 1",), ("class 3",)}
        assert index.count(where) == len(index.sample(900, seed=0, where=where)) == 360
        assert index.count(Where(labels=("class 1",), fields={"odd": 1})) == 90
        assert index.count(Where(fields={"odd": 1})) == 450
        assert index.count(Where(labels=("class 9",))) == 0


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"note": "a\0b"}, [0]),
        ({"note": "a"}, [2]),
        ({"note": "a\0"}, []),
        ({"number": 2**63}, [0]),
        ({"number": 2**63 + 1}, [1]),
        ({"number": float(2**63)}, [0]),
        ({"number": 1}, [2]),
        ({"number": True}, [3]),
        ({"k\0ey": 1}, [4]),
        ({"k": 1}, []),
    ],
)
def test_a_field_is_found_only_by_exactly_its_value(tmp_path, wanted, expected):
    fields = (
        {"note": "a\0b", "number": 2**63},
        {"note": "a\0c", "number": 2**63 + 1},
        {"note": "a", "number": 1},
        {"number": True},
        {"k\0ey": 1},
    )
    metadata = [Metadata(fields=each) for each in fields]
    with create_index(tmp_path / "i.orbit", 16) as index:
        index.add(np.arange(5), np.zeros((5, 2), np.uint8), metadata)
        where = Where(fields=wanted)
        (ball,) = index.within(np.zeros((1, 2), np.uint8), 0, where=where)
        assert ball.ids.tolist() == expected
        assert index.count(where) == len(expected)


def test_an_item_with_two_labels_counts_once(tmp_path):
    with create_index(tmp_path / "birds.orbit", 16) as index:
        notes = [Metadata(labels=labels) for labels in (("a", "b"), ("b", "nul\0b"), ())]
        index.add(np.arange(3), np.zeros((3, 2), np.uint8), notes)
        assert index.count(Where(labels=("a", "b"))) == 2
        assert index.count(Where(labels=("nul\0b",))) == 1


def test_labels_are_counted_also_after_removal(tmp_path):
    with create_index(tmp_path / "birds.orbit", 16) as index:
        assert index.label_counts() == {}
        notes = [Metadata(labels=labels) for labels in (("a", "b"), ("b",), ())]
        index.add(np.arange(3), np.zeros((3, 2), np.uint8), notes)
        assert index.label_counts() == {"a": 1, "b": 2}
        index.remove(np.array([0]))
        assert index.label_counts() == {"b": 1}


@pytest.fixture
def read_only(folder):
    """An index in which SQLite cannot create its files, as in a read-only folder, even for root."""
    (folder / f"{FILE}-shm").mkdir()
    return folder


def test_an_index_in_a_read_only_folder_is_searched_as_usual(original, read_only):
    assert content(read_only) == content(original)
    for read in FROM_METADATA.values():
        with open_index(read_only) as index, open_index(original) as expected:
            assert read(index) == read(expected)


def test_an_index_in_a_read_only_folder_cannot_be_changed(read_only):
    with open_index(read_only) as index:
        for change in (
            lambda: index.add(*items([1000])),
            lambda: index.update(*items([1])),
            lambda: index.remove([1]),
        ):
            with pytest.raises(StorageError, match="is read-only and can only be searched"):
                change()
        assert len(index) == 900


def test_nothing_is_written_to_a_file_without_permission(folder, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: path != folder / FILE)
    with open_index(folder) as index:
        for change in (lambda: index.add(*items([1000])), lambda: index.remove([])):
            with pytest.raises(StorageError, match="check its permissions or copy it"):
                change()
        assert len(index) == 900


@pytest.mark.parametrize("code", [sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY])
def test_items_that_only_the_log_of_a_stopped_process_holds_are_not_ignored(
    folder, monkeypatch, code
):
    connect = database.checked_connection

    def refuse_to_write(folder, uri):
        if "immutable" in uri:
            return connect(folder, uri)
        error = sqlite3.OperationalError("unable to open database file")
        error.sqlite_errorcode = code
        raise error

    monkeypatch.setattr(database, "checked_connection", refuse_to_write)
    log = folder / f"{FILE}-wal"
    for text in (None, ""):  # no log, and an empty one
        if text is not None:
            log.write_text(text)
        with open_index(folder) as index:
            assert len(index) == 900
    log.write_text("a transaction")
    with pytest.raises(InputError, match=r"items are still in index\.sqlite-wal"):
        open_index(folder)
    assert log.read_text() == "a transaction"
