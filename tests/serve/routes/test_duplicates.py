import numpy as np
import pytest

from orbithash.index import Metadata, create_index, open_index
from orbithash.serve.routes import duplicates
from orbithash.serve.routes.duplicates import CachedDuplicates
from orbithash.serve.settings import Limits, ServeSettings
from served_indexes import API, WRITE_KEY, bearer, client_of, with_keys

CODES = [0, 1, 3, 0xF000, 0xF000, 0xFF00, 0x0FF0, 0x0FF1, 0x0FF1]


@pytest.fixture
def index_path(tmp_path):
    """Groups within one bit: items 0, 1, 2; 6, 7, 8; and 3, 4."""
    with create_index(tmp_path / "birds.orbit", 16) as index:
        metadata = [Metadata(f"{i}.jpg", labels=("wren",)) for i in range(len(CODES))]
        codes = np.array(CODES, dtype=">u2").view(np.uint8).reshape(-1, 2)
        index.add(np.arange(len(CODES)), codes, metadata)
    return tmp_path / "birds.orbit"


@pytest.fixture
def client(index_path):
    with client_of(index_path) as client:
        yield client


def ids(response):
    return [[item["id"] for item in group["items"]] for group in response["groups"]]


def test_groups_are_ordered_by_size_and_show_distances(client):
    found = client.get(f"{API}/duplicates?radius=1").json()
    assert ids(found) == [[0, 1, 2], [6, 7, 8], [3, 4]]
    assert [(group["size"], group["spread"]) for group in found["groups"]] == [
        (3, 2),
        (3, 1),
        (2, 0),
    ]
    assert [item["distance"] for item in found["groups"][0]["items"]] == [0, 1, 2]
    first = found["groups"][0]["items"][0]
    assert (first["name"], first["labels"], first["code"]) == ("0.jpg", ["wren"], "0000")
    del found["groups"]
    assert found == {
        "radius": 1,
        "largest_radius": 2,
        "n_groups": 3,
        "n_items": 8,
        "n_bits": 16,
        "count": 9,
    }


def test_groups_and_their_items_are_read_page_by_page(client):
    assert ids(client.get(f"{API}/duplicates?radius=1&limit=2&offset=1").json()) == [
        [6, 7, 8],
        [3, 4],
    ]
    second = "radius=1&limit=1&offset=1"
    assert ids(client.get(f"{API}/duplicates?{second}&items=2").json()) == [[6, 7]]
    assert ids(client.get(f"{API}/duplicates?{second}&items=2&item_offset=2").json()) == [[8]]
    beyond = client.get(f"{API}/duplicates?radius=1&offset=99").json()
    assert (beyond["groups"], beyond["n_groups"]) == ([], 3)


def test_the_default_radius_is_three_or_the_largest(client, tmp_path):
    assert client.get(f"{API}/duplicates").json()["radius"] == 2
    create_index(tmp_path / "long.orbit", 64).close()
    with client_of(tmp_path / "long.orbit") as other:
        found = other.get(f"{API}/duplicates").json()
        assert (found["radius"], found["largest_radius"], found["groups"]) == (3, 8, [])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("radius=3", "radius is 3; at most 2 is allowed"),
        ("radius=-1", "radius: "),
        ("radius=2000", "radius: "),
        ("limit=0", "limit: "),
        ("limit=101", "limit: "),
        ("limit=100&items=100", "limit × items is 10000; at most 1000 is allowed"),
        ("offset=-1", "offset: "),
    ],
)
def test_requests_beyond_the_limits_are_rejected(client, parameters, message):
    response = client.get(f"{API}/duplicates?{parameters}")
    assert response.status_code == 422
    assert message in response.json()["detail"]


def test_the_limit_of_items_is_the_largest_k(index_path):
    with client_of(index_path, ServeSettings(limits=Limits(k=3))) as client:
        assert client.get(f"{API}/duplicates?limit=1&items=3").status_code == 200
        assert client.get(f"{API}/duplicates?limit=2&items=2").status_code == 422


def test_groups_are_computed_once_for_each_radius_until_the_index_changes(index_path, monkeypatch):
    monkeypatch.setattr(duplicates, "CACHE_FACTOR", 0.0)
    with open_index(index_path) as index:
        cache = CachedDuplicates(index)
        assert cache.current(1) is None
        groups = cache.get(1)
        assert cache.get(1) is groups
        assert cache.current(1) is groups
        assert cache.get(0) is not groups
        index.remove([0])
        assert cache.current(1) is None
        assert len(cache.get(1).ids) == 7


def test_groups_of_an_index_that_keeps_changing_are_not_computed_all_the_time(
    index_path, monkeypatch
):
    monkeypatch.setattr(duplicates, "CACHE_FACTOR", 1e9)
    with client_of(index_path, with_keys(), **bearer(WRITE_KEY)) as client:
        assert ids(client.get(f"{API}/duplicates?radius=1").json())[0] == [0, 1, 2]
        assert client.delete(f"{API}/items/1").status_code == 204
        kept = client.get(f"{API}/duplicates?radius=1").json()
        assert ids(kept)[0] == [0, 2]  # what is removed is not shown


def test_only_the_latest_radii_are_kept(index_path, monkeypatch):
    monkeypatch.setattr(duplicates, "MAX_CACHED", 2)
    with open_index(index_path) as index:
        cache = CachedDuplicates(index)
        for radius in (0, 1, 0, 2):
            cache.get(radius)
        assert cache.current(1) is None
        assert cache.current(0) is not None


def test_a_key_is_required_where_searching_needs_one(index_path):
    with client_of(index_path, with_keys()) as client:
        assert client.get(f"{API}/duplicates").status_code == 401
