import http.client
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from clean_processes import call
from image_files import noise
from index_writer import BATCH, N_BITS, batch_codes, last_stored_batch, wait_for, write
from live_servers import live_server, wait_until
from orbithash.index import Metadata, create_index, open_index
from orbithash.serve.limits.limiters import MAX_CLIENTS, RateLimiter
from orbithash.serve.settings import Limits, ServeSettings
from served_indexes import API, as_base64, as_bytes, client_of, picture_index


@pytest.fixture(scope="module")
def index_path(tmp_path_factory):
    return picture_index(tmp_path_factory.mktemp("served"))


class SlowIndex:
    """An index whose searches wait until they may finish."""

    def __init__(self, index):
        self._index = index
        self.n_searches = 0
        self.has_started, self.may_finish = threading.Event(), threading.Event()

    def __getattr__(self, name):
        return getattr(self._index, name)

    def __len__(self):
        return len(self._index)

    def search(self, codes, k, where=None):
        self.has_started.set()
        assert self.may_finish.wait(600)
        self.n_searches += 1
        return self._index.search(codes, k, where)


def post(server, path, body, headers=None):
    """Return status, headers and JSON of a response."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    try:
        connection.request("POST", f"{API}/{path}", body, headers or {})
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), json.loads(response.read())
    finally:
        connection.close()


def by_id(server, identifier=1):
    body = json.dumps({"id": identifier, "k": 3})
    return post(server, "search", body, {"Content-Type": "application/json"})


def test_too_many_concurrent_requests_get_503_and_the_others_succeed(index_path):
    slow = SlowIndex(open_index(index_path))
    settings = ServeSettings(limits=Limits(rate=0, concurrency=4))
    with live_server(slow, settings) as server, ThreadPoolExecutor(40) as clients:
        accepted = [clients.submit(by_id, server) for _ in range(4)]
        wait_until(lambda: server.n_requests == 4)
        for status, headers, body in clients.map(lambda _: by_id(server), range(36)):
            assert status == 503
            assert headers["retry-after"] == "1"
            assert "busy" in body["detail"]
        slow.may_finish.set()
        assert [each.result()[0] for each in accepted] == [200] * 4
        assert slow.n_searches == 4
        assert by_id(server)[0] == 200  # the slots are free again


def test_the_encoding_queue_is_bounded(index_path, monkeypatch):
    from orbithash.encoders import ImageEncoder

    embed, may_finish = ImageEncoder.embed, threading.Event()

    def slow(self, images):
        assert may_finish.wait(600)
        return embed(self, images)

    monkeypatch.setattr(ImageEncoder, "embed", slow)
    settings = ServeSettings(limits=Limits(rate=0, encoding_queue=2))
    content = as_bytes(noise((20, 20)))
    with client_of(index_path, settings) as client, ThreadPoolExecutor(12) as clients:

        def upload(_):
            return client.post(f"{API}/search/image", files={"image": content}).status_code

        accepted = [clients.submit(upload, i) for i in range(3)]  # one is encoded, two wait
        wait_until(lambda: "orbithash_encoding_queue 3.0" in client.get("/metrics").text)
        assert list(clients.map(upload, range(9))) == [503] * 9
        # Searches without an image do not wait for the encoder.
        assert client.post(f"{API}/search", json={"id": 1}).status_code == 200
        may_finish.set()
        assert [each.result() for each in accepted] == [200] * 3


def test_the_rate_limit_gives_429_except_for_health(index_path):
    settings = ServeSettings(limits=Limits(rate=0.01, burst_seconds=500))
    with client_of(index_path, settings) as client:
        statuses = [client.get(f"{API}/items/1").status_code for _ in range(8)]
        assert statuses == [200] * 5 + [429] * 3
        retry_after = int(client.get(f"{API}/items/1").headers["retry-after"])
        assert 60 < retry_after <= 100  # seconds until a token is back, less those of this test
        assert client.get("/health").status_code == 200


def test_token_buckets_refill_and_are_per_client():
    now = 0.0
    limiter = RateLimiter(2.0, burst=4.0, clock=lambda: now)
    assert [limiter.acquire("a") for _ in range(5)] == [0, 0, 0, 0, 0.5]
    assert limiter.acquire("b") == 0
    now = 0.5
    assert limiter.acquire("a") == 0
    assert limiter.acquire("a") == 0.5
    now = 1e6  # at most the burst
    assert [limiter.acquire("a") for _ in range(5)] == [0, 0, 0, 0, 0.5]
    for client in range(MAX_CLIENTS + 10):
        limiter.acquire(str(client))
    assert len(limiter._buckets) == MAX_CLIENTS


def test_a_declared_length_above_the_limit_is_rejected_before_the_body(index_path):
    settings = ServeSettings(limits=Limits(rate=0, upload_bytes=10_000))
    with (
        live_server(index_path, settings) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=600) as client,
    ):
        client.sendall(
            f"POST {API}/search/image HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            "Content-Length: 99999999999\r\nContent-Type: application/json\r\n\r\n".encode()
        )
        assert client.recv(1000).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    ("path", "content_type"),
    [("search", "application/json"), ("search/image", "multipart/form-data; boundary=x")],
)
def test_a_body_without_declared_length_is_rejected_at_the_limit(index_path, path, content_type):
    settings = ServeSettings(limits=Limits(rate=0, upload_bytes=100_000))
    head = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n'

    def endless():
        yield head
        for _ in range(200):
            yield b"a" * 1000

    with live_server(index_path, settings) as server:
        status, _, body = post(server, path, endless(), {"Content-Type": content_type})
    assert status == 413
    assert "MiB" in body["detail"]


def test_a_body_that_does_not_arrive_times_out(index_path):
    settings = ServeSettings(limits=Limits(rate=0, upload_seconds=0.3))
    with (
        live_server(index_path, settings) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=600) as client,
    ):
        client.sendall(
            f"POST {API}/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n"
            "Content-Type: application/json\r\n\r\n{".encode()
        )
        assert client.recv(1000).startswith(b"HTTP/1.1 408")
        assert by_id(server)[0] == 200


def test_an_image_with_too_many_pixels_is_rejected(index_path):
    with client_of(index_path, ServeSettings(limits=Limits(rate=0, pixels=1000))) as client:
        response = client.post(f"{API}/search/image", files={"image": as_bytes(noise((40, 30)))})
        assert response.status_code == 422
        assert "40 × 30 pixels are more than 1,000" in response.json()["detail"]


def test_the_pixels_of_all_images_of_a_request_are_limited(index_path):
    # A JPEG is decoded at an eighth of its size, but its declared pixels count.
    image = {"image": as_base64(as_bytes(noise((400, 240)), "JPEG"))}
    with client_of(index_path, ServeSettings(limits=Limits(rate=0, pixels=100_000))) as client:
        statuses = [
            client.post(f"{API}/search/batch", json={"searches": [image] * n}).status_code
            for n in (2, 3)
        ]
    assert statuses == [200, 422]


def test_a_request_whose_images_take_too_long_is_rejected(index_path):
    image = {"image": as_base64(as_bytes(noise((40, 24))))}
    with client_of(index_path, ServeSettings(limits=Limits(rate=0, encoding_seconds=0))) as client:
        response = client.post(f"{API}/search/batch", json={"searches": [image] * 2})
        assert response.status_code == 422
        assert "too long" in response.json()["detail"]


def test_the_size_of_a_batch_is_limited(index_path):
    with client_of(index_path, ServeSettings(limits=Limits(rate=0, batch=3))) as client:
        response = client.post(f"{API}/search/batch", json={"searches": [{"id": 1}] * 4})
        assert response.status_code == 422
        assert "at most 3" in response.json()["detail"]


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("search/batch", {"searches": [0] * 20_000}),
        ("search/batch", {"searches": [{"id": 1, "labels": [0] * 20_000}]}),
        ("search/batch", {"searches": [{"id": 1} | {str(i): 0 for i in range(50)}] * 900}),
        ("search", {"id": 1} | {str(i): 0 for i in range(20_000)}),
        ("session", {str(i): 0 for i in range(100)}),
    ],
)
def test_a_small_body_with_many_errors_is_rejected_at_the_first(
    index_path, path, sent, monkeypatch
):
    from fastapi.exceptions import RequestValidationError

    errors = RequestValidationError.errors
    n_errors = []

    def counting(self):
        n_errors.append(len(errors(self)))
        return errors(self)

    monkeypatch.setattr(RequestValidationError, "errors", counting)
    with client_of(index_path) as client:
        response = client.post(f"{API}/{path}", json=sent)
    assert response.status_code == 422
    assert "at most" in response.json()["detail"]
    assert max(n_errors) == 1


def test_accepted_requests_finish_during_shutdown(index_path):
    slow = SlowIndex(open_index(index_path))
    with live_server(slow) as server, ThreadPoolExecutor(1) as clients:
        waiting = clients.submit(by_id, server)
        assert slow.has_started.wait(600)
        server.stop()
        wait_until(lambda: not accepts_connections(server))
        slow.may_finish.set()
        status, _, body = waiting.result()
        assert status == 200
        assert len(body["hits"]) == 3


def accepts_connections(server):
    try:
        socket.create_connection(("127.0.0.1", server.port), timeout=600).close()
    except ConnectionError:
        return False
    return True


def test_an_internal_error_is_logged_and_not_revealed(index_path, caplog):
    class BrokenIndex(SlowIndex):
        def search(self, codes, k, where=None):
            raise RuntimeError("the secret is in /etc/shadow")

    with live_server(BrokenIndex(open_index(index_path))) as server:
        status, headers, body = by_id(server)
    assert status == 500
    assert "shadow" not in body["detail"]
    assert "x-content-type-options" in headers
    assert "shadow" in caplog.text


def test_searches_see_additions_and_removals_of_other_connections(tmp_path):
    index = picture_index(tmp_path)
    with client_of(index) as client, open_index(index) as writer:
        code = np.frombuffer(bytes.fromhex("00ff00"), dtype=np.uint8)[None]
        for added in range(20, 40):
            writer.add(np.array([added]), code, [Metadata(labels=("added",))])
            hits = client.post(f"{API}/search", json={"code": "00ff00", "k": 100}).json()["hits"]
            assert len(hits) == 12 + added - 19
            assert hits[0]["distance"] == 0
            assert client.get(f"{API}/items/{added}").json()["labels"] == ["added"]
        writer.remove(np.arange(20, 40))
        hits = client.post(f"{API}/search", json={"code": "00ff00", "k": 100}).json()["hits"]
        assert len(hits) == 12


def test_searches_see_additions_of_another_process(tmp_path):
    address, told = tmp_path / "written.orbit", tmp_path / "told.txt"
    create_index(address, N_BITS).close()
    with client_of(address) as client:
        writer = call(write, str(address), told, 0)
        try:
            for batch in (0, 2, 4):
                wait_for(lambda batch=batch: last_stored_batch(told) >= batch, writer)
                code = batch_codes(batch)[7].tobytes().hex()
                response = client.post(f"{API}/search", json={"code": code, "k": 1})
                assert response.status_code == 200
                (hit,) = response.json()["hits"]
                assert (hit["id"], hit["distance"]) == (batch * BATCH + 7, 0)
                assert hit["labels"] == ["class 0"]
        finally:
            writer.kill()
            writer.join()
