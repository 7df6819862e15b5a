"""Milvus beyond the contract: encoders, errors and killed processes."""

import ast
import os
import re
import socket
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

import orbithash
from clean_processes import call
from image_files import class_folder
from index_writer import BATCH, N_BITS, batch_codes, last_stored_batch, wait_for, write
from indexed_runs import image_run
from milvus_servers import new_collection
from orbithash.cli import run
from orbithash.errors import CodeLengthError, InputError, MissingExtraError, ServerError
from orbithash.index import ENGINES, Metadata, Where, create_index, open_index
from orbithash.index.milvus.rows import read_encoder, write_encoder
from orbithash.index.milvus.server import MilvusServer


@pytest.fixture
def address(milvus_server):
    return f"milvus:{milvus_server.address}/{new_collection()}"


@pytest.mark.slow
def test_the_same_commands_work_with_a_server(address, tmp_path, capsys):
    photos = class_folder(tmp_path / "photos", {"wren": 3, "robin": 3})
    arguments = ["index", str(image_run(tmp_path / "run")), str(photos), "--out", address]
    assert run(arguments) == 0
    assert "6 new, 0 changed, 0 as before, 0 gone." in capsys.readouterr().out
    (photos / "wren" / "1.jpg").unlink()
    assert run([*arguments, "--prune"]) == 0
    assert "0 new, 0 changed, 5 as before, 1 gone." in capsys.readouterr().out
    image = photos / "robin" / "2.jpg"
    assert run(["search", address, str(image), "--label", "robin", "--json"]) == 0
    assert f'"path": "{image}"' in capsys.readouterr().out
    assert run(["index", "--out", address, "--remove", "0"]) == 0
    assert "Removed 1 of 1 items; 4 are left." in capsys.readouterr().out
    codes = orbithash.load(address).encode([image])
    np.testing.assert_array_equal(codes, orbithash.load(tmp_path / "run").encode([image]))


@pytest.mark.slow
def test_an_encoder_of_many_parts_is_read_as_it_was_written(address):
    content = np.random.default_rng(0).bytes(5_000_000)
    with create_index(address, 16, encoder=content) as index:
        assert index.encoder() == content
    with open_index(address) as index:
        assert index.encoder() == content


@pytest.mark.slow
def test_mismatches_are_reported(address, milvus_server):
    with pytest.raises(InputError, match="there is no collection"):
        open_index(address)
    with create_index(address, 32) as index:
        with pytest.raises(InputError, match="holds no encoder"):
            index.encoder()
        index.add(np.array([3]), np.zeros((1, 4), dtype=np.uint8), [Metadata("a.jpg")])
        assert index.next_id() == 4
        with pytest.raises(ServerError, match="refused"):
            index.add(np.array([4]), np.zeros((1, 4), np.uint8), [Metadata("a" * 9000)])
        assert len(index) == 1
    with pytest.raises(InputError, match="exists"):
        create_index(address, 32)
    with pytest.raises(CodeLengthError, match="have 4 bytes where 64 bits need 8"):
        ENGINES["milvus"](64, server=milvus_server.address, collection=address.rpartition("/")[2])


@pytest.mark.slow
def test_a_collection_is_opened_only_by_the_engine_that_created_it(address):
    other = address.replace("milvus:", "milvus-ivf:")
    create_index(other, 32).close()
    with pytest.raises(InputError, match=f"was made as milvus-ivf; open it as {other}"):
        open_index(address)
    open_index(other).close()


@pytest.mark.parametrize(
    ("created", "opened", "message"),
    [
        (
            "BIN_IVF_FLAT",
            "milvus",
            "was made as milvus-ivf; open it as milvus-ivf:http://x:1/birds",
        ),
        ("BIN_FLAT", "milvus-ivf", "was made as milvus; open it as milvus:http://x:1/birds"),
        ("HNSW", "milvus", "is indexed as HNSW, which orbithash does not search"),
        ("BIN_FLAT", "milvus", None),
        (None, "milvus-ivf", None),
    ],
)
def test_the_wrong_kind_of_index_is_refused_with_the_right_address(
    created, opened, message, monkeypatch
):
    client = FakeClient(created)
    package = SimpleNamespace(MilvusClient=client, MilvusException=RuntimeError)
    monkeypatch.setattr("orbithash.index.milvus.server.import_pymilvus", lambda: package)
    expected = nullcontext() if message is None else pytest.raises(InputError, match=message)
    with expected:
        open_index(f"{opened}:http://x:1/birds")
    # An engine that refuses the collection must not change it.
    assert client.loaded == (message is None)
    assert client.indexed_as == ("BIN_IVF_FLAT" if created is None else created)


def test_ids_are_assigned_after_the_highest_and_lists_are_accepted(monkeypatch):
    client = FakeClient("BIN_FLAT")
    package = SimpleNamespace(MilvusClient=client, MilvusException=RuntimeError)
    monkeypatch.setattr("orbithash.index.milvus.server.import_pymilvus", lambda: package)
    index = open_index("milvus:http://x:1/birds")
    assert index.add(codes=[[0, 1, 2, 3], [4, 5, 6, 7]]).tolist() == [0, 1]
    assert index.add([7], [[8, 9, 10, 11]]).tolist() == [7]
    assert index.add(codes=np.zeros((1, 4), np.uint8)).tolist() == [8]
    assert {i: list(row["code"]) for i, row in client.rows.items()} == {
        0: [0, 1, 2, 3],
        1: [4, 5, 6, 7],
        7: [8, 9, 10, 11],
        8: [0, 0, 0, 0],
    }


@pytest.mark.parametrize("value", [2**63, -(2**63), 2**63 + 1, 2.0**53, -1e300])
def test_numbers_that_milvus_would_round_are_neither_stored_nor_filtered_by(value, monkeypatch):
    client = FakeClient("BIN_FLAT")
    package = SimpleNamespace(MilvusClient=client, MilvusException=RuntimeError)
    monkeypatch.setattr("orbithash.index.milvus.server.import_pymilvus", lambda: package)
    index = open_index("milvus:http://x:1/birds")
    metadata = [Metadata(fields={"n": 2**63 - 1, "x": 0.1, "seen": True}), Metadata()]
    index.add(codes=np.zeros((2, 4), np.uint8), metadata=metadata)
    with pytest.raises(InputError, match=r"'n' is .*; Milvus compares whole numbers"):
        index.add(
            codes=np.zeros((2, 4), np.uint8), metadata=[Metadata(), Metadata(fields={"n": value})]
        )
    assert len(client.rows) == 2
    with pytest.raises(InputError, match="give such a number as a string"):
        index.search(np.zeros((1, 4), np.uint8), k=1, where=Where(fields={"n": value}))


@pytest.mark.slow
def test_filters_find_exactly_the_value(address):
    values = ["a", "a\0b", "a\0c", 'a"\\\n', 2**53, 2**53 + 1, 2**63 - 1, 1 - 2**63, 0.1, True, 1]
    fields = [{"value": value} for value in values]
    with create_index(address, 32) as index:
        codes = np.zeros((len(values), 4), np.uint8)
        index.add(codes=codes, metadata=[Metadata(fields=each) for each in fields])
        for i, each in enumerate(fields):
            found = index.search(codes[:1], k=len(values), where=Where(fields=each))
            assert found.ids.tolist() == [[i]], each


@pytest.mark.parametrize(("value", "n_warnings"), [(1.0, 0), (0.5, 1)])
def test_a_search_of_embeddings_warns_if_milvus_may_hold_nearer_items(
    value, n_warnings, monkeypatch, caplog
):
    package = SimpleNamespace(MilvusClient=FakeClient("BIN_FLAT"), MilvusException=RuntimeError)
    monkeypatch.setattr("orbithash.index.milvus.server.import_pymilvus", lambda: package)
    monkeypatch.setattr("orbithash.index.milvus.milvus_index.FIRST_ROWS", 10)
    monkeypatch.setattr("orbithash.index.milvus.milvus_index.MAX_ROWS", 40)
    index = open_index("milvus:http://x:1/birds")
    codes = np.random.default_rng(0).integers(0, 256, (100, 4), dtype=np.uint8)
    index.add(codes=codes)
    found = index.search(np.full((2, 32), value), k=3)
    assert len(caplog.messages) == n_warnings
    if n_warnings:
        assert "2 of 2 embeddings were compared only with the 40 codes" in caplog.text
    else:
        expected = np.argsort(-np.bitwise_count(codes).sum(axis=1).astype(int), kind="stable")[:3]
        np.testing.assert_array_equal(found.ids, [expected] * 2)


def test_an_encoder_that_is_not_visible_yet_is_waited_for():
    written, levels = [], []

    class LateServer(MilvusServer):
        """A server on which only a Strong read sees what was written."""

        def __init__(self):
            pass

        def has(self, name):
            return bool(written)

        def create(self, name, *, description, **fields):
            written.append({"description": description})

        def make_searchable(self, name, index_type, vector):
            pass

        def description(self, name):
            return written[0]["description"]

        def call(self, method, name, rows):
            written.extend(rows)

        def query(self, name, condition, fields, *, level):
            levels.append(level)
            return written[1:] if level == "Strong" else []

    write_encoder(LateServer(), "birds", b"encoder")
    assert read_encoder(LateServer(), "birds") == b"encoder"
    assert levels == ["Eventually", "Strong"]


class FakeClient:
    """The part of a Milvus client that opening a collection, adding and searching need."""

    def __init__(self, indexed_as):
        self.indexed_as, self.loaded = indexed_as, False
        self.rows = {}
        self.levels = []  # of consistency, of each read

    def upsert(self, collection, rows, **options):
        self.rows |= {row["id"]: row for row in rows}

    def search(self, collection, *, data, limit, consistency_level, **options):
        self.levels.append(consistency_level)
        return [self.nearest(code)[:limit] for code in data]

    def nearest(self, code):
        hits = [
            {
                "id": i,
                "distance": sum(
                    (a ^ b).bit_count() for a, b in zip(row["code"], code, strict=True)
                ),
                "entity": {"code": row["code"]},
            }
            for i, row in self.rows.items()
        ]
        return sorted(hits, key=lambda hit: hit["distance"])

    def query(self, collection, *, filter, output_fields, consistency_level, **options):
        self.levels.append(consistency_level)
        if output_fields == ["count(*)"]:
            return [{"count(*)": len(self.rows)}]
        if filter.startswith("id in "):
            wanted = ast.literal_eval(filter.removeprefix("id in "))
            # A vector comes back in a list.
            found = [self.rows[i] for i in sorted(self.rows) if i in wanted]
            return [row | {"code": [row["code"]]} for row in found]
        above = int(re.findall(r"-?\d+", filter)[-1])  # "id > 3", or "(id > 3) and id > 7"
        return [{"id": i} for i in sorted(self.rows) if i > above]

    def __call__(self, address, **options):
        return self

    def has_collection(self, collection, **options):
        return True

    def describe_collection(self, collection, **options):
        return {"description": '{"orbithash": 1, "n_bits": 32}'}

    def list_indexes(self, collection, **options):
        return [] if self.indexed_as is None else ["code"]

    def describe_index(self, collection, name, **options):
        return {"index_type": self.indexed_as, "field_name": "code"}

    def prepare_index_params(self):
        return self

    def add_index(self, field, *, index_type, **options):
        self.wanted = index_type

    def create_index(self, collection, parameters, **options):
        self.indexed_as = self.wanted

    def load_collection(self, collection, **options):
        self.loaded = True


@pytest.mark.slow
@pytest.mark.parametrize("kills", [3])
def test_a_killed_writer_loses_nothing_that_it_reported(address, tmp_path, kills):
    told = tmp_path / "told.txt"
    create_index(address, N_BITS).close()
    first = 0
    for _ in range(kills):
        writer = call(write, address, told, first)
        wait_for(lambda: last_stored_batch(told) >= first, writer)  # noqa: B023 — called immediately
        os.kill(writer.pid, 9)
        writer.join()
        with open_index(address) as index:
            n_batches = last_stored_batch(told) + 1
            assert len(index) >= n_batches * BATCH
            codes = np.concatenate([batch_codes(batch) for batch in range(n_batches)])
            stored = index.get(np.arange(n_batches * BATCH))
            np.testing.assert_array_equal(stored.codes, codes)
            # The unfinished batch is written again under the same ids, so nothing is stored twice.
            first = n_batches


@pytest.mark.slow
def test_a_killed_server_loses_nothing_that_was_reported(address, milvus_server, tmp_path):
    if not milvus_server.is_ours:
        pytest.skip("it must not kill a server that it did not start")
    told = tmp_path / "told.txt"
    create_index(address, N_BITS).close()
    writer = call(write, address, told, 0)
    wait_for(lambda: last_stored_batch(told) >= 2, writer)
    milvus_server.kill()
    try:
        writer.join(timeout=300)
        assert writer.exitcode == 1
        with pytest.raises(ServerError, match="no Milvus server answers"):
            open_index(address)
    finally:
        milvus_server.start()
    with open_index(address) as index:
        n_batches = last_stored_batch(told) + 1
        np.testing.assert_array_equal(
            index.get(np.arange(n_batches * BATCH)).codes,
            np.concatenate([batch_codes(batch) for batch in range(n_batches)]),
        )


def test_an_unavailable_server_is_reported_in_time(capsys, monkeypatch):
    monkeypatch.setattr("orbithash.index.milvus.server.PAUSE", 0.01)
    pymilvus = pytest.importorskip("pymilvus")
    attempts, connect = [], pymilvus.MilvusClient
    monkeypatch.setattr(
        pymilvus, "MilvusClient", lambda *given, **options: connect(*attempted(given), **options)
    )

    def attempted(given):
        attempts.append(given)
        return given

    with socket.socket() as deaf:  # it has the port and does not listen
        deaf.bind(("127.0.0.1", 0))
        port = deaf.getsockname()[1]
        assert run(["search", f"milvus:http://127.0.0.1:{port}/birds", "--like", "1"]) == 1
    assert len(attempts) == 4
    error = capsys.readouterr().err
    assert f"no Milvus server answers at http://127.0.0.1:{port}" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(("engine", "package"), [("milvus", "pymilvus"), ("faiss", "faiss")])
def test_a_missing_package_is_reported_with_its_install_command(engine, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'orbithash\[{engine}\]'"):
        ENGINES[engine](16)


@pytest.mark.parametrize(
    "address",
    ["milvus:localhost/x", "milvus:http://localhost:19530", "milvus:http://localhost:19530/a-b"],
)
def test_an_invalid_address_is_refused(address):
    with pytest.raises(InputError, match=r"write milvus:http|not a valid collection name"):
        open_index(address)


@pytest.mark.parametrize("option", ["consistency=loose", "consistency", "timeout=3", ""])
def test_an_unknown_option_of_an_address_is_refused(option):
    with pytest.raises(InputError, match=r"write \?consistency= and one of strong, bounded"):
        open_index(f"milvus:http://localhost:19530/birds?{option}")
    with pytest.raises(InputError, match="choose one of strong, bounded, eventually"):
        ENGINES["milvus"](16, consistency="loose")


@pytest.mark.parametrize(
    ("option", "level"),
    [
        ("", "Strong"),
        ("?consistency=bounded", "Bounded"),
        ("?consistency=eventually", "Eventually"),
    ],
)
def test_only_searches_may_miss_the_latest_writes(option, level, monkeypatch):
    client = FakeClient("BIN_FLAT")
    package = SimpleNamespace(MilvusClient=client, MilvusException=RuntimeError)
    monkeypatch.setattr("orbithash.index.milvus.server.import_pymilvus", lambda: package)
    index = open_index(f"milvus:http://x:1/birds{option}")
    index.add(codes=[[0, 1, 2, 3]])
    assert set(client.levels) == {"Strong"}  # otherwise two items could get one id
    client.levels.clear()
    index.search(np.zeros((1, 4), np.uint8), k=1)
    index.within(np.zeros((1, 4), np.uint8), radius=1)
    index.get([0])
    assert client.levels == [level] * 3
