"""The server on a Milvus index."""

from milvus_servers import new_collection
from orbithash.cli import run
from served_indexes import API, WRITE_KEY, bearer, client_of, picture_index, with_keys


def test_milvus_and_folder_give_the_same_responses(tmp_path, milvus_server):
    index = picture_index(tmp_path)
    address = f"milvus:{milvus_server.address}/{new_collection()}"
    source = [str(tmp_path / "run"), str(tmp_path / "photos")]
    assert run(["index", *source, "--out", address]) == 0
    content = (tmp_path / "photos/1/2.png").read_bytes()
    with (
        client_of(index) as folder,
        client_of(address, with_keys(public=True), **bearer(WRITE_KEY)) as milvus,
    ):
        for request in ({"id": 5, "k": 100}, {"id": 5, "k": 100, "labels": ["1"], "radius": 9}):
            ours, theirs = (
                client.post(f"{API}/search", json=request).json() for client in (folder, milvus)
            )
            for name in ("hits", "count", "n_with_labels", "nearest_distance"):
                assert theirs[name] == ours[name]
        ours, theirs = (
            client.post(f"{API}/search/image", files={"image": content}, data={"k": 100}).json()
            for client in (folder, milvus)
        )
        assert theirs["hits"] == ours["hits"]
        assert milvus.get(f"{API}/items/6/image").content == content
        ours, theirs = (client.get(f"{API}/stats").json() for client in (folder, milvus))
        for name in ("count", "n_bits", "labels", "bit_balance", "distances"):
            assert theirs[name] == ours[name]
        assert len(milvus.get(f"{API}/sample?n=5").json()["items"]) == 5
        some = milvus.get(f"{API}/sample?n=3&labels=1").json()["items"]
        assert [item["labels"] for item in some] == [["1"]] * 3
        assert "'dodo'" in milvus.get(f"{API}/sample?labels=dodo").json()["detail"]
        added = milvus.post(f"{API}/items", json={"items": [{"code": "00ff00", "labels": ["x"]}]})
        (identifier,) = added.json()["ids"]
        found = milvus.post(f"{API}/search", json={"code": "00ff00", "labels": ["x"]}).json()
        assert [hit["id"] for hit in found["hits"]] == [identifier]
        assert milvus.delete(f"{API}/items/{identifier}").status_code == 204
        assert milvus.get(f"{API}/items/{identifier}").status_code == 404
        assert milvus.get("/ready").status_code == 200
