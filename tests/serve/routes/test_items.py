import io
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from image_files import noise
from orbithash.index import Metadata, create_index, open_index
from orbithash.serve.error_responses import NotFoundError
from orbithash.serve.images import ThumbnailCache
from orbithash.serve.settings import ServeSettings
from served_indexes import (
    API,
    NO_RATE_LIMIT,
    READ_KEY,
    WRITE_KEY,
    TestClient,
    as_base64,
    as_bytes,
    bearer,
    client_of,
    create_app,
    picture_index,
    with_keys,
)


def test_item_does_not_reveal_the_path_of_its_file(client, index_path):
    item = client.get(f"{API}/items/6").json()
    assert item["labels"] == ["1"]
    assert item["name"] == "1/2.png"
    assert item["picture"] is True
    assert str(index_path.parent) not in str(item)


def test_original_and_thumbnail_are_served(client, index_path):
    content = (index_path.parent / "photos/1/2.png").read_bytes()
    original = client.get(f"{API}/items/6/image")
    assert original.content == content
    assert original.headers["content-type"] == "image/png"
    small = client.get(f"{API}/items/6/thumbnail")
    assert small.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(small.content)).size == (24, 20)
    again = client.get(f"{API}/items/6/thumbnail", headers={"If-None-Match": small.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_thumbnail_of_a_large_image_is_small(tmp_path):
    noise((1200, 800)).save(tmp_path / "large.jpg")
    with (
        client_of_paths(tmp_path, [str(tmp_path / "large.jpg")]) as client,
        Image.open(io.BytesIO(client.get(f"{API}/items/0/thumbnail").content)) as small,
    ):
        assert small.size == (320, 213)


@pytest.mark.parametrize("kind", ["thumbnail", "image"])
@pytest.mark.parametrize(
    "path", ["/etc/passwd", "/dev/zero", "/proc/self/environ", "../../etc/passwd", "row 5", ""]
)
def test_files_other_than_images_are_not_served_even_if_the_index_names_them(tmp_path, path, kind):
    with client_of_paths(tmp_path, [path], images=tmp_path) as client:
        response = client.get(f"{API}/items/0/{kind}")
        assert response.status_code == 404
        assert "root:" not in response.text


def test_relative_paths_are_resolved_only_inside_the_image_folder(tmp_path):
    noise((20, 20)).save(tmp_path / "outside.png")
    (tmp_path / "photos").mkdir()
    noise((20, 20)).save(tmp_path / "photos/inside.png")
    (tmp_path / "photos/link.png").symlink_to(tmp_path / "outside.png")
    paths = ["inside.png", "../outside.png", "link.png"]
    with client_of_paths(tmp_path, paths, images=tmp_path / "photos") as client:
        found = [client.get(f"{API}/items/{i}/image").status_code for i in range(3)]
    assert found == [200, 404, 404]
    with client_of_paths(tmp_path / "again", paths) as client:
        assert client.get(f"{API}/items/0/image").status_code == 404


def test_server_without_a_write_key_is_read_only(client):
    for response in (
        client.post(f"{API}/items", json={"items": [{"code": "00ff00"}]}),
        client.post(f"{API}/items/image", files={"image": as_bytes(noise((9, 9)))}),
        client.delete(f"{API}/items/0"),
    ):
        assert response.status_code == 403
        assert "ORBITHASH_KEY" in response.json()["detail"]


@pytest.mark.parametrize("headers", [{}, bearer("wrong" * 8), bearer(READ_KEY)])
def test_writing_requires_the_write_key(index_path, headers):
    with client_of(index_path, with_keys(public=True), **headers) as client:
        assert client.delete(f"{API}/items/0").status_code == 401
        assert client.post(f"{API}/items", json={"items": []}).status_code == 401
        assert client.get(f"{API}/items/0").status_code == 200


def test_items_are_added_searched_and_removed_with_the_write_key(tmp_path):
    index = picture_index(tmp_path, classes=2)
    settings = with_keys(uploads=tmp_path / "uploads")
    with client_of(index, settings, **bearer(WRITE_KEY)) as client:
        content = as_bytes(noise((50, 40), seed=7), "JPEG")
        added = [
            {"code": "00ff00", "labels": ["new", "x;y"], "fields": {"year": 2020}},
            {"bits": "01" * 12},
            {"image": as_base64(content), "labels": ["photo"]},
        ]
        response = client.post(f"{API}/items", json={"items": added})
        assert response.status_code == 201
        assert response.json()["ids"] == [8, 9, 10]
        item = client.get(f"{API}/items/8").json()
        assert (item["labels"], item["fields"]) == (["new", "x;y"], {"year": 2020})
        assert item["picture"] is False
        assert client.get(f"{API}/items/9").json()["code"] == "555555"
        assert client.get(f"{API}/items/10/image").content == content
        uploaded = client.post(
            f"{API}/items/image",
            files={"image": ("../../evil.php", content)},
            data={"labels": ["a", "b"]},
        )
        assert uploaded.json()["ids"] == [11]
        assert len(list((tmp_path / "uploads").iterdir())) == 1
        found = client.post(f"{API}/search", json={"id": 10, "labels": ["b"]}).json()
        assert (found["hits"][0]["id"], found["hits"][0]["distance"]) == (11, 0)
        assert client.delete(f"{API}/items/10").status_code == 204
        assert client.delete(f"{API}/items/10").status_code == 404
        assert client.get(f"{API}/items/10").status_code == 404
        assert client.get(f"{API}/items/11/image").content == content
    with open_index(index) as reopened:
        assert len(reopened) == 11


def test_the_same_image_added_concurrently_is_stored_once(tmp_path):
    settings = with_keys(uploads=tmp_path / "uploads")
    content = as_bytes(noise((300, 200), seed=3))
    with (
        client_of(picture_index(tmp_path, classes=1), settings, **bearer(WRITE_KEY)) as client,
        ThreadPoolExecutor(4) as clients,
    ):

        def upload(_):
            return client.post(f"{API}/items/image", files={"image": content})

        responses = list(clients.map(upload, range(8)))
        assert [response.status_code for response in responses] == [201] * 8
        ids = [response.json()["ids"][0] for response in responses]
        assert sorted(ids) == list(range(4, 12))
        assert client.get(f"{API}/items/{ids[0]}/image").content == content
    assert len(list((tmp_path / "uploads").iterdir())) == 1


def test_concurrent_additions_get_distinct_ids(tmp_path):
    class OverwritingIndex:
        """An index that overwrites items with the same id, which Milvus may do."""

        def __init__(self, index):
            self._index = index

        def __getattr__(self, name):
            return getattr(self._index, name)

        def next_id(self):
            identifier = self._index.next_id()
            time.sleep(0.05)
            return identifier

        def add(self, ids, codes, metadata):
            self._index.update(ids, codes, metadata)

    opened = create_index(tmp_path / "codes.orbit", 8)
    app = create_app(OverwritingIndex(opened), None, with_keys())
    with (
        TestClient(app, base_url="http://127.0.0.1", headers=bearer(WRITE_KEY)) as client,
        ThreadPoolExecutor(4) as clients,
    ):

        def add(_):
            return client.post(f"{API}/items", json={"items": [{"code": "0f"}]}).json()["ids"]

        assert sorted(clients.map(add, range(8))) == [[i] for i in range(8)]


def test_an_unwritable_upload_folder_is_503_and_not_named(tmp_path):
    (tmp_path / "uploads").write_text("not a folder")
    settings = with_keys(uploads=tmp_path / "uploads")
    with client_of(picture_index(tmp_path, classes=1), settings, **bearer(WRITE_KEY)) as client:
        response = client.post(f"{API}/items/image", files={"image": as_bytes(noise((9, 9)))})
        assert response.status_code == 503
        assert str(tmp_path) not in response.text


def test_thumbnail_of_a_deleted_file_is_not_found(tmp_path):
    with pytest.raises(NotFoundError):
        ThumbnailCache().get(tmp_path / "gone.png")


def test_original_deleted_after_the_type_check_is_not_found(tmp_path, monkeypatch):
    file = tmp_path / "a.png"
    noise((9, 9)).save(file)

    def delete(file):
        file.unlink()
        return "image/png"

    monkeypatch.setattr("orbithash.serve.routes.items.image_media_type", delete)
    with client_of_paths(tmp_path, [str(file)]) as client:
        response = client.get(f"{API}/items/0/image")
        assert response.status_code == 404
        assert str(tmp_path) not in response.text


def test_adding_without_free_ids_is_rejected(tmp_path):
    with create_index(tmp_path / "full.orbit", 8) as index:
        index.add(np.array([2**63 - 1]), np.zeros((1, 1), np.uint8), [Metadata()])
    with client_of(tmp_path / "full.orbit", with_keys(), **bearer(WRITE_KEY)) as client:
        response = client.post(f"{API}/items", json={"items": [{"code": "0f"}]})
        assert response.status_code == 422
        assert "no ids left" in response.json()["detail"]


def test_an_invalid_item_rejects_the_whole_batch(tmp_path):
    with client_of(picture_index(tmp_path), with_keys(), **bearer(WRITE_KEY)) as client:
        batch = {"items": [{"code": "00ff00"}, {"image": as_base64(b"no image")}]}
        assert client.post(f"{API}/items", json=batch).status_code == 422
        assert client.get(f"{API}/stats").json()["count"] == 12


def test_labels_that_are_not_valid_unicode_are_rejected(tmp_path):
    with client_of(picture_index(tmp_path), with_keys(), **bearer(WRITE_KEY)) as client:
        response = client.post(
            f"{API}/items",
            content=rb'{"items": [{"code": "00ff00", "labels": ["\ud800"]}]}',
            headers={"Content-Type": "application/json"},
        )
        assert response.status_code == 422


def client_of_paths(folder, paths, images=None):
    """Return a client of an index whose items have these paths."""
    folder.mkdir(exist_ok=True)
    with create_index(folder / "paths.orbit", 8) as index:
        codes = np.arange(len(paths), dtype=np.uint8)[:, None]
        index.add(np.arange(len(paths)), codes, [Metadata(path=path) for path in paths])
    return client_of(folder / "paths.orbit", ServeSettings(images=images, limits=NO_RATE_LIMIT))
