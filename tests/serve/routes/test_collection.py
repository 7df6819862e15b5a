import re

import numpy as np
import pytest

from orbithash.index import Metadata, create_index, open_index
from orbithash.serve.routes.collection import compute_statistics
from served_indexes import API, client_of, picture_index


def test_statistics_match_the_codes(client, index_path):
    stats = client.get(f"{API}/stats").json()
    with open_index(index_path) as index:
        (items,) = index.iterate()
    bits = np.unpackbits(items.codes, axis=1)
    assert (stats["count"], stats["n_bits"], stats["n_labels"]) == (12, 24, 3)
    assert stats["labels"] == [{"label": str(label), "count": 4} for label in range(3)]
    np.testing.assert_allclose(stats["bit_balance"], bits.mean(axis=0), atol=1e-4)
    apart = [int((a != b).sum()) for i, a in enumerate(bits) for b in bits[i + 1 :]]
    assert stats["distances"] == np.bincount(apart, minlength=25).tolist()
    assert stats["nearest"][0]["distance"] == min(apart)
    assert stats["farthest"][0]["distance"] == max(apart)
    assert stats["takes_images"] is True
    assert stats["may_add"] is False


def test_metrics_count_items_and_ignore_invented_methods(client):
    for invented in ("M1", "m2", "get"):
        client.request(invented, f"{API}/stats")
    text = client.get("/metrics").text
    assert "orbithash_index_items 12.0" in text
    assert not re.search(r'method="(M1|m2|get)"', text)


def test_about_is_a_subset_of_stats(client):
    about = client.get(f"{API}/about").json()
    stats = client.get(f"{API}/stats").json()
    assert about == {name: stats[name] for name in about}
    assert about["count"] == 12


def test_an_item_is_in_at_most_one_pair(client):
    stats = client.get(f"{API}/stats").json()
    for pairs in (stats["nearest"], stats["farthest"]):
        ids = [pair[end]["id"] for pair in pairs for end in ("first", "second")]
        assert len(ids) == len(set(ids)) == 12


def test_sample_is_random_and_reproducible_by_seed(client):
    once, again = (client.get(f"{API}/sample?n=5&seed=3").json()["items"] for _ in range(2))
    assert once == again
    assert len({item["id"] for item in once}) == 5
    drawn = {client.get(f"{API}/sample?n=1").json()["items"][0]["id"] for _ in range(40)}
    assert len(drawn) > 3
    assert len(client.get(f"{API}/sample?n=100").json()["items"]) == 12


def test_a_sample_can_be_restricted_to_labels(client):
    sample = client.get(f"{API}/sample", params={"n": 100, "labels": ["0", "2"]}).json()
    assert [item["labels"] for item in sample["items"]] == [["0"]] * 4 + [["2"]] * 4
    assert (sample["count"], sample["n_with_labels"]) == (12, 8)
    assert client.get(f"{API}/sample").json()["n_with_labels"] is None


@pytest.mark.parametrize("n", [0, 1])
def test_statistics_of_an_index_with_zero_or_one_item(tmp_path, n):
    with create_index(tmp_path / "small.orbit", 12) as index:
        index.add(np.arange(n), np.zeros((n, 2), np.uint8), [Metadata()] * n)
    with client_of(tmp_path / "small.orbit") as client:
        stats = client.get(f"{API}/stats").json()
        assert (stats["count"], stats["nearest"], sum(stats["distances"])) == (n, [], 0)
        assert stats["takes_images"] is False
        rejected = client.post(f"{API}/search/image", files={"image": b"x"})
        assert "no encoder" in rejected.json()["detail"]


def test_statistics_of_a_large_index_use_a_sample(tmp_path):
    rng = np.random.default_rng(0)
    with create_index(tmp_path / "large.orbit", 16) as index:
        codes = rng.integers(0, 256, (5000, 2), dtype=np.uint8)
        index.add(
            np.arange(5000), codes, [Metadata(labels=("a", "b")[: 1 + i % 2]) for i in range(5000)]
        )
        statistics = compute_statistics(index)
    assert len(statistics.sample) == 1000
    assert statistics.frequent_labels == {"a": 5000, "b": 2500}
    assert sum(statistics.distances) == 1000 * 999 // 2
    assert np.argmax(statistics.distances) == 8


def test_health_readiness_and_metrics(client):
    client.post(f"{API}/search", json={"id": 3})
    client.post(f"{API}/search", json={"id": 4711})
    client.get("/wp-admin/setup.php")
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}
    text = client.get("/metrics").text
    search = 'orbithash_requests_total{method="POST",route="/search"'
    assert f'{search},status="200"}} 1.0' in text
    assert f'{search},status="404"}} 1.0' in text
    assert "setup.php" not in text
    assert "orbithash_index_items 12.0" in text
    assert "orbithash_request_seconds_bucket" in text
    assert "process_resident_memory_bytes" in text


def test_server_with_an_unavailable_index_is_not_ready(tmp_path, monkeypatch):
    from orbithash.errors import ServerError
    from orbithash.index.store.stored_index import StoredIndex

    def unavailable(self, *arguments):
        raise ServerError("no Milvus server responds at http://milvus.internal:19530")

    with client_of(picture_index(tmp_path)) as client:
        monkeypatch.setattr(StoredIndex, "__len__", unavailable)
        monkeypatch.setattr(StoredIndex, "search", unavailable)
        assert client.get("/health").status_code == 200
        assert client.get("/ready").status_code == 503
        response = client.post(f"{API}/search", json={"id": 1})
        assert response.status_code == 503
        assert "milvus.internal" not in response.text
