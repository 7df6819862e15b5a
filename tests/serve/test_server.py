"""Slow clients do not block others."""

import asyncio
import socket
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress

import numpy as np
import pytest

from image_files import noise
from live_servers import live_server, wait_until
from orbithash.index import Metadata, create_index, open_index
from orbithash.index.store.stored_index import StoredIndex
from orbithash.serve.limits import connections
from orbithash.serve.limits.limiters import ConcurrencyLimiter
from orbithash.serve.settings import Limits, ServeSettings
from orbithash.serve.workers import OverloadedError, WorkerPool
from served_indexes import API, WRITE_KEY, bearer, client_of, picture_index, with_keys


@pytest.fixture(scope="module")
def index_path(tmp_path_factory):
    return picture_index(tmp_path_factory.mktemp("served"), classes=1)


def connect(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=600)


def get(server, path):
    """Return the status of a response, or 0 if the connection was closed."""
    with connect(server) as client, suppress(ConnectionError):
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        return int(client.recv(1000)[9:12] or 0)
    return 0


def test_slow_request_bodies_do_not_block_others(index_path):
    settings = ServeSettings(limits=Limits(rate=0, concurrency=4))
    with live_server(index_path, settings) as server, ExitStack() as held:
        for _ in range(8):
            client = held.enter_context(connect(server))
            client.sendall(
                f"POST {API}/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n"
                "Content-Type: application/json\r\n\r\n{".encode()
            )
        wait_until(lambda: server.n_requests == 8)
        assert get(server, f"{API}/items/1") == 200


def test_clients_that_do_not_read_are_disconnected_and_do_not_block_searches(tmp_path, monkeypatch):
    noise((2400, 2000)).save(tmp_path / "large.bmp")  # larger than the socket buffers
    with create_index(tmp_path / "large.orbit", 8) as index:
        metadata = [Metadata(str(tmp_path / "large.bmp"))]
        index.add(np.array([0]), np.zeros((1, 1), np.uint8), metadata)
    settings = ServeSettings(limits=Limits(rate=0, concurrency=2))

    def request_two_images(server, held):
        for _ in range(2):
            client = held.enter_context(connect(server))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(f"GET {API}/items/0/image HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())

    monkeypatch.setattr(connections, "WRITE_TIMEOUT", 3600.0)
    with live_server(tmp_path / "large.orbit", settings) as server, ExitStack() as held:
        request_two_images(server, held)
        wait_until(lambda: server.n_requests == 2)
        assert get(server, f"{API}/items/0/image") == 503
        assert get(server, f"{API}/items/0") == 200
    monkeypatch.setattr(connections, "WRITE_TIMEOUT", 0.1)
    with live_server(tmp_path / "large.orbit", settings) as server, ExitStack() as held:
        request_two_images(server, held)
        assert get(server, "/health") == 200  # connections are accepted in their order
        wait_until(lambda: server.n_connections == 0)
        # The places of the closed connections are free a moment later.
        wait_until(lambda: get(server, f"{API}/items/0/image") == 200)


def test_connections_without_complete_headers_are_closed(index_path, monkeypatch):
    with live_server(index_path) as server:
        monkeypatch.setattr(connections, "HEADER_TIMEOUT", 0.1)
        with connect(server) as silent, connect(server) as half:
            with suppress(ConnectionError):  # closed before this arrived
                half.sendall(b"GET /health HTTP/1.1\r\nHost:")
            assert is_closed(silent)
            assert is_closed(half)
        monkeypatch.setattr(connections, "HEADER_TIMEOUT", 3600.0)
        with connect(server) as reused:  # two requests on one connection
            for _ in range(2):
                reused.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                response = b""
                while not response.endswith(b"}"):
                    response += reused.recv(5000)
                assert b" 200 " in response
            # Only a timer that complete headers have cancelled starts again.
            monkeypatch.setattr(connections, "HEADER_TIMEOUT", 0.1)
            reused.sendall(b"GET /health")
            assert is_closed(reused)


def is_closed(client):
    try:
        return client.recv(10) == b""
    except ConnectionError:
        return True


def test_one_address_gets_at_most_a_quarter_of_the_connections(index_path, monkeypatch):
    monkeypatch.setattr(connections, "largest_share", lambda client, capacity: capacity // 4)
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 12)
    settings = ServeSettings(limits=Limits(rate=0, concurrency=1))
    with live_server(index_path, settings) as server, ExitStack() as held:
        for _ in range(3):
            held.enter_context(connect(server))
        wait_until(lambda: server.n_connections == 3)
        assert get(server, "/health") == 0
        held.close()
        wait_until(lambda: server.n_connections == 0)
        assert get(server, "/health") == 200


def test_a_worker_pool_raises_when_its_work_times_out():
    may_finish = threading.Event()
    pool = WorkerPool("hanging", n_threads=1, max_queued=1, timeout=0.1)
    # In a thread, because the browser of another test leaves its event loop running in this one.
    with ThreadPoolExecutor(1) as thread, pytest.raises(OverloadedError):
        thread.submit(lambda: asyncio.run(pool.run(may_finish.wait, 600))).result()
    may_finish.set()
    pool.close()


def test_one_client_gets_at_most_a_quarter_of_the_capacity_and_loopback_all():
    limiter = ConcurrencyLimiter(8)
    assert [limiter.try_acquire("192.0.2.1") for _ in range(3)] == [True, True, False]
    assert [limiter.try_acquire("192.0.2.2") for _ in range(3)] == [True, True, False]
    assert [limiter.try_acquire("127.0.0.1") for _ in range(5)] == [True] * 4 + [False]
    limiter.release("127.0.0.1")
    assert limiter.try_acquire("192.0.2.3")
    assert not limiter.try_acquire("192.0.2.4")


def test_a_session_request_must_be_small(index_path):
    with client_of(index_path) as client:
        response = client.post(f"{API}/session", json={"key": "x" * 5000})
        assert response.status_code == 413


def test_concurrent_readiness_requests_share_one_check_and_no_slot(index_path):
    class HangingIndex:
        def __init__(self, index):
            self._index, self.n_calls, self.may_return = index, 0, threading.Event()

        def __getattr__(self, name):
            return getattr(self._index, name)

        def __len__(self):
            self.n_calls += 1
            self.may_return.wait(600)
            return len(self._index)

    index = HangingIndex(open_index(index_path))
    settings = ServeSettings(limits=Limits(rate=0, concurrency=2))
    with live_server(index, settings) as server, ThreadPoolExecutor(8) as clients:
        responses = [clients.submit(get, server, "/ready") for _ in range(8)]
        wait_until(lambda: server.n_requests == 8)
        assert get(server, f"{API}/items/1") == 200
        index.may_return.set()
        assert [each.result() for each in responses] == [200] * 8
        assert index.n_calls == 1


def test_searches_are_served_while_an_addition_waits_for_another_process(tmp_path, monkeypatch):
    index = picture_index(tmp_path, classes=1)
    has_started, add = threading.Event(), StoredIndex.add

    def add_started(self, *arguments):
        has_started.set()
        return add(self, *arguments)

    monkeypatch.setattr(StoredIndex, "add", add_started)
    writer = sqlite3.connect(index / "index.sqlite", isolation_level=None)
    with (
        closing(writer),
        client_of(index, with_keys(), **bearer(WRITE_KEY)) as client,
        ThreadPoolExecutor(1) as clients,
    ):
        writer.execute("BEGIN IMMEDIATE")
        adding = clients.submit(client.post, f"{API}/items", json={"items": [{"code": "00ff00"}]})
        assert has_started.wait(600)
        assert client.post(f"{API}/search", json={"id": 1}).status_code == 200
        assert not adding.done()
        writer.execute("ROLLBACK")
        assert adding.result().status_code == 201
