"""One unfriendly client cannot keep others waiting; see also benchmarks/unfriendly.py."""

import asyncio
import http.client
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from urllib.request import urlopen

import numpy as np
import pytest
from PIL import Image

from live_servers import live_server, wait_until
from orbithash.index import Metadata, create_index, open_index
from orbithash.serve.images import ThumbnailCache
from orbithash.serve.limits import bodies, connections, middleware
from orbithash.serve.settings import Limits, ServeSettings
from served_indexes import API, as_base64, client_of

FRIENDLY, UNFRIENDLY = "127.0.0.1", "127.0.0.2"
UNLIMITED = ServeSettings(limits=Limits(rate=0))


@pytest.fixture(scope="module")
def index_path(tmp_path_factory):
    """An index of codes, each with its own label and one that all have."""
    folder = tmp_path_factory.mktemp("served") / "codes.orbit"
    with create_index(folder, 16) as index:
        codes = np.random.default_rng(0).integers(0, 256, (40, 2), dtype=np.uint8)
        index.add(np.arange(40), codes, [Metadata(labels=("all", f"{i}")) for i in range(40)])
    return folder


class CountedIndex:
    """An index that counts searches and takes a moment for each."""

    def __init__(self, index):
        self._index, self.n_searches = index, 0
        self.may_search = threading.Event()
        self.may_search.set()

    def __getattr__(self, name):
        return getattr(self._index, name)

    def __len__(self):
        return len(self._index)

    def search(self, *arguments):
        self.n_searches += 1
        time.sleep(0.01)
        assert self.may_search.wait(600)
        return self._index.search(*arguments)


def post(server, path, sent, *, source=FRIENDLY):
    """Return the status and the JSON of a response."""
    connection = http.client.HTTPConnection(
        "127.0.0.1", server.port, timeout=600, source_address=(source, 0)
    )
    try:
        body = sent if isinstance(sent, bytes) else json.dumps(sent)
        connection.request("POST", f"{API}/{path}", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


EXPENSIVE = {"searches": [{"id": i, "k": 1000} for i in range(10)]}


def test_a_search_comes_between_the_parts_of_another_clients_batches(index_path):
    index = CountedIndex(open_index(index_path))
    with live_server(index, UNLIMITED) as server, ThreadPoolExecutor(16) as clients:
        batches = [
            clients.submit(post, server, "search/batch", EXPENSIVE, source=UNFRIENDLY)
            for _ in range(8)
        ]
        wait_until(lambda: index.n_searches >= 4)
        before = index.n_searches
        assert post(server, "search", {"id": 1})[0] == 200
        waited = index.n_searches - before
        statuses = {batch.result()[0] for batch in batches}
    assert statuses == {200}
    assert waited < 20  # of 80; batches that were searched as a whole, in their order, took all


def test_batches_of_clients_that_have_gone_are_given_up(index_path):
    index = CountedIndex(open_index(index_path))
    index.may_search.clear()
    with live_server(index, UNLIMITED) as server:
        body = json.dumps(EXPENSIVE)
        with socket.create_connection(("127.0.0.1", server.port), timeout=600) as client:
            client.sendall(
                f"POST {API}/search/batch HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "
                f"application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
            )
            wait_until(lambda: index.n_searches == 1)
        wait_until(lambda: server.n_connections == 0)
        index.may_search.set()
        wait_until(lambda: server.n_requests == 0)
    assert index.n_searches == 1


@pytest.mark.parametrize(
    ("searches", "expected"),
    [
        ([{"id": i, "k": 1000} for i in range(64)], "64,000 hits in total; at most 10,000"),
        ([{"id": i, "radius": 3} for i in range(11)], "11,000 hits in total; at most 10,000"),
        ([{"id": i, "labels": ["all", f"{i}"]} for i in range(6)], "6 different lists of labels"),
    ],
)
def test_a_batch_that_would_take_too_long_is_rejected(index_path, searches, expected):
    settings = ServeSettings(limits=Limits(rate=0, filtered_items=200))  # 5 × 40 items
    with client_of(index_path, settings) as client:
        response = client.post(f"{API}/search/batch", json={"searches": searches})
        assert response.status_code == 422
        assert expected in response.json()["detail"]
        few = client.post(f"{API}/search/batch", json={"searches": searches[:5]})
        assert len(few.json()["answers"]) == 5


def test_a_batch_with_equal_filters_counts_them_once(index_path):
    settings = ServeSettings(limits=Limits(rate=0, filtered_items=40))
    with client_of(index_path, settings) as client:
        searches = [{"id": i, "labels": ["all"], "k": 300} for i in range(20)]
        response = client.post(f"{API}/search/batch", json={"searches": searches})
        assert response.status_code == 200
        assert {each["n_with_labels"] for each in response.json()["answers"]} == {40}
        ids = [each["query"]["item"]["id"] for each in response.json()["answers"]]
        assert ids == list(range(20))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("search", b"[" + b"[]," * 100_000 + b"[]]"),
        ("search", b'{"image":"' + b"," * 100_001 + b'"}'),
        ("search/image", b"&" * 200_000),
        ("search", b'{"code":"' + b"0" * (4 << 20) + b'"}'),
        ("stats", b"0" * 5000),
    ],
)
def test_bodies_that_take_long_to_parse_are_rejected_unparsed(index_path, path, body, monkeypatch):
    def parse(*arguments, **options):
        raise AssertionError

    kind = "application/x-www-form-urlencoded" if path == "search/image" else "application/json"
    with client_of(index_path) as client, monkeypatch.context() as patched:
        patched.setattr("starlette.requests.json.loads", parse)
        patched.setattr("starlette.requests.FormParser.parse", parse)
        response = client.request(
            "GET" if path == "stats" else "POST",
            f"{API}/{path}",
            content=body,
            headers={"Content-Type": kind},
        )
    assert response.status_code == 413
    assert "request" in response.json()["detail"]


def test_the_largest_batches_of_embeddings_and_images_are_accepted(index_path):
    image = as_base64(b"," * (5 << 20))
    with client_of(index_path) as client:
        searches = [{"embedding": [0.123456789] * 16} for _ in range(64)]
        response = client.post(f"{API}/search/batch", json={"searches": searches})
        assert response.status_code == 200
        # Rejected for another reason.
        response = client.post(f"{API}/search", json={"image": image})
        assert "no encoder" in response.json()["detail"]
    assert bodies.MAX_JSON_VALUES > 64 * 1024 + 3 * 64


def test_bodies_of_one_client_are_read_at_a_limited_rate(index_path, monkeypatch):
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    body = b"0" * (3 << 20)
    monkeypatch.setattr(bodies, "BURST_BYTES", 4 << 20)
    monkeypatch.setattr(bodies, "BYTES_PER_SECOND", 1024)
    with client_of(index_path) as client:
        monkeypatch.setattr(bodies.asyncio, "sleep", sleep)
        for _ in range(2):
            client.post(f"{API}/search", content=body)
    # What exceeds 4 MiB has to wait.
    assert max(waits) == pytest.approx(2 << 10, rel=0.1)


def test_a_request_waits_for_a_place_before_it_is_rejected(index_path, monkeypatch):
    monkeypatch.setattr(middleware, "MAX_WAIT", 600)
    index = CountedIndex(open_index(index_path))
    settings = ServeSettings(limits=Limits(rate=0, concurrency=2))
    with live_server(index, settings) as server, ThreadPoolExecutor(8) as clients:
        searches = [clients.submit(post, server, "search", {"id": i}) for i in range(8)]
        assert {search.result()[0] for search in searches} == {200}


def test_all_images_of_a_page_wait_for_their_places(tmp_path, monkeypatch):
    def get(cache, file):
        time.sleep(0.03)
        return b"image"

    monkeypatch.setattr(middleware, "MAX_WAIT", 0.01)
    monkeypatch.setattr(ThumbnailCache, "get", get)
    Image.new("RGB", (8, 8)).save(tmp_path / "image.png")
    index = create_index(tmp_path / "codes.orbit", 16)
    index.add(codes=np.zeros((1, 2), np.uint8), metadata=[Metadata(f"{tmp_path}/image.png")])
    settings = ServeSettings(limits=Limits(rate=0, concurrency=1))
    with live_server(index, settings) as server, ThreadPoolExecutor(6) as clients:
        address = f"http://127.0.0.1:{server.port}{API}/items/0/thumbnail"
        images = [clients.submit(urlopen, address, timeout=600) for _ in range(6)]
        assert {image.result().read() for image in images} == {b"image"}


def test_connections_stay_below_the_number_of_files_that_may_be_open(monkeypatch):
    monkeypatch.setattr(connections.resource, "getrlimit", lambda _: (256, 256))
    assert connections.limited_protocol(256).args[0] == 128
    unlimited = connections.resource.RLIM_INFINITY
    monkeypatch.setattr(connections.resource, "getrlimit", lambda _: (unlimited, unlimited))
    assert connections.limited_protocol(256).args[0] == 1000
    assert connections.limited_protocol(4000).args[0] == 4000


def test_failing_to_accept_connections_is_logged_once_and_other_errors_as_usual(caplog):
    class Loop(asyncio.SelectorEventLoop):
        others = 0

        def default_exception_handler(self, context):
            self.others += 1

    loop, handler = Loop(), connections.AcceptErrors()
    loop.close()
    refused = {
        "message": "socket.accept() out of system resource",
        "exception": OSError(24, "Too many open files"),
    }
    with caplog.at_level(logging.ERROR):
        for _ in range(1000):
            handler(loop, refused)
        handler(loop, {"message": "another"})
    assert [record.name for record in caplog.records] == ["orbithash.serve.limits.connections"]
    assert "Too many open files" in caplog.text
    assert loop.others == 1


@pytest.mark.slow
def test_a_server_with_few_files_survives_many_idle_connections(index_path, tmp_path):
    log = tmp_path / "log.txt"
    command = f"ulimit -n 256; exec {sys.executable} -m orbithash serve {index_path} --port 0"
    with log.open("w") as written:
        process = subprocess.Popen(
            ["bash", "-c", command], stdout=subprocess.PIPE, stderr=written, text=True
        )
    try:
        address = next(line.strip() for line in process.stdout if line.startswith("  http"))
        port = int(address.rstrip("/").rpartition(":")[2])
        with ExitStack() as held:
            for _ in range(1500):
                idle = socket.create_connection(
                    ("127.0.0.1", port), timeout=60, source_address=(UNFRIENDLY, 0)
                )
                held.enter_context(idle)
            client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            held.callback(client.close)
            client.request("GET", f"{API}/about")
            assert client.getresponse().status == 200
    finally:
        os.kill(process.pid, signal.SIGTERM)
        process.wait(60)
        process.stdout.close()
    assert len(log.read_text().splitlines()) < 20
