import http.client
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from clean_processes import call
from image_files import noise
from index_writer import BATCH, N_BITS, batch_codes, read_told, wait_for, write
from live_servers import live_server
from orbithash.index import Metadata, create_index, open_index
from orbithash.serve.limits.limiters import MAX_CLIENTS, RateLimiter
from orbithash.serve.settings import Limits, ServeSettings
from served_indexes import API, as_base64, as_bytes, client_of, picture_index


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return picture_index(tmp_path_factory.mktemp("served"))


class SlowIndex:
    """An index whose searches wait for each other, and take a while."""

    def __init__(self, index, seconds):
        self._index, self._seconds = index, seconds
        self.n_searches, self.has_begun = 0, threading.Event()

    def __getattr__(self, name):
        return getattr(self._index, name)

    def __len__(self):
        return len(self._index)

    def search(self, codes, k, where=None):
        self.has_begun.set()
        time.sleep(self._seconds)
        self.n_searches += 1
        return self._index.search(codes, k, where)


def post(server, path, body, headers=None):
    """Status, headers and JSON of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request("POST", f"{API}/{path}", body, headers or {})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), json.loads(answer.read())
    finally:
        connection.close()


def by_id(server, identifier=1):
    body = json.dumps({"id": identifier, "k": 3})
    return post(server, "search", body, {"Content-Type": "application/json"})


def test_too_much_at_once_is_shed_with_503_and_the_rest_is_answered(place):
    slow = SlowIndex(open_index(place), 0.2)
    settings = ServeSettings(limits=Limits(rate=0, concurrency=4))
    with live_server(slow, settings) as server, ThreadPoolExecutor(40) as clients:
        answers = list(clients.map(lambda _: by_id(server), range(40)))
        statuses = [status for status, _, _ in answers]
        assert set(statuses) == {200, 503}
        assert statuses.count(200) >= 4
        for status, headers, body in answers:
            if status == 503:
                assert headers["retry-after"] == "1"
                assert "busy" in body["detail"]
        assert slow.n_searches == statuses.count(200)
        assert by_id(server)[0] == 200  # at once


def test_images_wait_in_a_short_queue(place, monkeypatch):
    from orbithash.encoders import ImageEncoder

    encode = ImageEncoder.encode

    def slow(self, images):
        time.sleep(0.3)
        return encode(self, images)

    monkeypatch.setattr(ImageEncoder, "encode", slow)
    settings = ServeSettings(limits=Limits(rate=0, encoding_queue=2))
    content = as_bytes(noise((20, 20)))
    with client_of(place, settings) as client, ThreadPoolExecutor(12) as clients:

        def upload(_):
            return client.post(f"{API}/search/image", files={"image": content}).status_code

        statuses = list(clients.map(upload, range(12)))
        assert set(statuses) == {200, 503}
        assert statuses.count(200) >= 3
        # What needs no encoder is answered meanwhile.
        waiting = clients.submit(upload, 0)
        assert client.post(f"{API}/search", json={"id": 1}).status_code == 200
        assert waiting.result() == 200


def test_a_client_that_asks_too_often_is_told_to_wait_and_health_is_exempt(place):
    settings = ServeSettings(limits=Limits(rate=0.01, burst_seconds=500))
    with client_of(place, settings) as client:
        statuses = [client.get(f"{API}/items/1").status_code for _ in range(8)]
        assert statuses == [200] * 5 + [429] * 3
        retry_after = int(client.get(f"{API}/items/1").headers["retry-after"])
        assert 60 < retry_after <= 100  # seconds until a token is back, less those of this test
        assert client.get("/health").status_code == 200


def test_tokens_come_back_with_time_and_clients_do_not_share_them():
    now = 0.0
    limiter = RateLimiter(2.0, burst=4.0, clock=lambda: now)
    assert [limiter.acquire("a") for _ in range(5)] == [0, 0, 0, 0, 0.5]
    assert limiter.acquire("b") == 0
    now = 0.5
    assert limiter.acquire("a") == 0
    assert limiter.acquire("a") == 0.5
    now = 1e6  # no more than the burst
    assert [limiter.acquire("a") for _ in range(5)] == [0, 0, 0, 0, 0.5]
    for client in range(MAX_CLIENTS + 10):
        limiter.acquire(str(client))
    assert len(limiter._buckets) == MAX_CLIENTS


def test_an_upload_that_is_too_large_is_refused_before_it_is_read(place):
    settings = ServeSettings(limits=Limits(rate=0, upload_bytes=10_000))
    with (
        live_server(place, settings) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=20) as client,
    ):
        client.sendall(
            f"POST {API}/search/image HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            "Content-Length: 99999999999\r\nContent-Type: application/json\r\n\r\n".encode()
        )
        assert client.recv(1000).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    ("path", "kind"),
    [("search", "application/json"), ("search/image", "multipart/form-data; boundary=x")],
)
def test_an_upload_without_a_length_is_cut_off_at_the_limit(place, path, kind):
    settings = ServeSettings(limits=Limits(rate=0, upload_bytes=100_000))
    head = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n'

    def endless():
        yield head
        for _ in range(200):
            yield b"a" * 1000

    with live_server(place, settings) as server:
        status, _, body = post(server, path, endless(), {"Content-Type": kind})
    assert status == 413
    assert "MiB" in body["detail"]


def test_an_upload_that_does_not_come_is_given_up(place):
    settings = ServeSettings(limits=Limits(rate=0, upload_seconds=0.3))
    with (
        live_server(place, settings) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=20) as client,
    ):
        client.sendall(
            f"POST {API}/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n"
            "Content-Type: application/json\r\n\r\n{".encode()
        )
        assert client.recv(1000).startswith(b"HTTP/1.1 408")
        assert by_id(server)[0] == 200


def test_an_image_of_too_many_pixels_is_refused(place):
    with client_of(place, ServeSettings(limits=Limits(rate=0, pixels=1000))) as client:
        answer = client.post(f"{API}/search/image", files={"image": as_bytes(noise((40, 30)))})
        assert answer.status_code == 422
        assert "40 × 30 pixels are more than 1,000" in answer.json()["detail"]


def test_the_images_of_a_request_have_a_limit_together(place):
    # A JPEG is decoded at an eighth of its size, and still costs what it claims.
    image = {"image": as_base64(as_bytes(noise((400, 240)), "JPEG"))}
    with client_of(place, ServeSettings(limits=Limits(rate=0, pixels=100_000))) as client:
        statuses = [
            client.post(f"{API}/search/batch", json={"searches": [image] * n}).status_code
            for n in (2, 3)
        ]
    assert statuses == [200, 422]


def test_a_request_whose_images_take_too_long_is_given_up(place):
    image = {"image": as_base64(as_bytes(noise((40, 24))))}
    with client_of(place, ServeSettings(limits=Limits(rate=0, encoding_seconds=0))) as client:
        answer = client.post(f"{API}/search/batch", json={"searches": [image] * 2})
        assert answer.status_code == 422
        assert "too long" in answer.json()["detail"]


def test_a_batch_has_a_limit(place):
    with client_of(place, ServeSettings(limits=Limits(rate=0, batch=3))) as client:
        answer = client.post(f"{API}/search/batch", json={"searches": [{"id": 1}] * 4})
        assert answer.status_code == 422
        assert "at most 3" in answer.json()["detail"]


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
def test_a_small_body_of_many_errors_is_refused_by_its_first(place, path, sent, monkeypatch):
    from fastapi.exceptions import RequestValidationError

    errors = RequestValidationError.errors
    n_errors = []

    def counted(self):
        n_errors.append(len(errors(self)))
        return errors(self)

    monkeypatch.setattr(RequestValidationError, "errors", counted)
    with client_of(place) as client:
        answer = client.post(f"{API}/{path}", json=sent)
    assert answer.status_code == 422
    assert "at most" in answer.json()["detail"]
    assert max(n_errors) == 1


def test_what_was_accepted_is_answered_when_the_server_ends(place):
    slow = SlowIndex(open_index(place), 1.0)
    with live_server(slow) as server, ThreadPoolExecutor(1) as clients:
        waiting = clients.submit(by_id, server)
        assert slow.has_begun.wait(20)
        server.stop()
        status, _, body = waiting.result()
        assert status == 200
        assert len(body["hits"]) == 3
    with pytest.raises(ConnectionError):
        by_id(server)


def test_an_error_inside_is_told_to_the_log_and_not_to_the_client(place, caplog):
    class BrokenIndex(SlowIndex):
        def search(self, codes, k, where=None):
            raise RuntimeError("the secret is in /etc/shadow")

    with live_server(BrokenIndex(open_index(place), 0)) as server:
        status, headers, body = by_id(server)
    assert status == 500
    assert "shadow" not in body["detail"]
    assert "x-content-type-options" in headers
    assert "shadow" in caplog.text


def test_the_server_sees_what_another_connection_adds_and_removes(tmp_path):
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


def test_the_server_goes_on_while_another_process_adds(tmp_path):
    address, told = tmp_path / "written.orbit", tmp_path / "told.txt"
    create_index(address, N_BITS).close()
    with client_of(address) as client:
        writer = call(write, str(address), told, 0)
        try:
            for batch in (0, 2, 4):
                wait_for(lambda batch=batch: read_told(told) >= batch, writer)
                code = batch_codes(batch)[7].tobytes().hex()
                answer = client.post(f"{API}/search", json={"code": code, "k": 1})
                assert answer.status_code == 200
                (hit,) = answer.json()["hits"]
                assert (hit["id"], hit["distance"]) == (batch * BATCH + 7, 0)
                assert hit["labels"] == ["class 0"]
        finally:
            writer.kill()
            writer.join()
