import numpy as np
import pytest
from PIL import Image

from coloured_images import coloured
from orbithash.cli import run
from orbithash.codes import asymmetric_distances
from orbithash.encoders import ImageEncoder
from orbithash.errors import UnknownIdError
from orbithash.hashers import HASHERS
from orbithash.index import Metadata, create_index, open_index
from orbithash.networks import load_photo_backbone
from orbithash.retrieval.query import Query, find
from orbithash.serve.settings import Limits, ServeSettings
from served_indexes import API, as_base64, as_bytes, client_of, picture_index


@pytest.fixture(scope="module")
def stored(index_path):
    with open_index(index_path) as index:
        (items,) = index.iterate()
    return items


def search(client, **request):
    response = client.post(f"{API}/search", json=request)
    assert response.status_code == 200, response.text
    return response.json()


def test_search_by_id_ranks_the_other_items_by_distance(client, stored):
    response = search(client, id=5, k=6)
    distances = np.unpackbits(stored.codes ^ stored.codes[5], axis=1).sum(axis=1)
    expected = sorted((int(d), i) for i, d in enumerate(distances) if i != 5)[:6]
    assert [(hit["distance"], hit["id"]) for hit in response["hits"]] == expected
    assert [hit["rank"] for hit in response["hits"]] == [1, 2, 3, 4, 5, 6]
    assert response["query"]["item"]["id"] == 5
    assert response["query"]["code"] == stored.codes[5].tobytes().hex()
    for hit in response["hits"]:
        assert hit["matches"] == (hit["labels"] == ["1"])
        assert hit["code"] == stored.codes[hit["id"]].tobytes().hex()
        assert hit["name"] == f"{hit['labels'][0]}/{hit['id'] % 4}.png"
        assert hit["picture"] is True


def test_search_by_uploaded_image_finds_its_code_first(client, index_path, stored):
    content = (index_path.parent / "photos/1/2.png").read_bytes()
    response = client.post(f"{API}/search/image", files={"image": content}, data={"k": 3}).json()
    embedding = response["query"].pop("embedding")
    assert response["query"] == {"code": stored.codes[6].tobytes().hex(), "item": None}
    assert response["ranking"] == "asymmetric"
    assert response["hits"][0]["hamming"] == 0
    distances = asymmetric_distances([embedding], stored.codes)[0].tolist()
    expected = sorted(zip(distances, stored.ids.tolist(), strict=True))[:3]
    assert [(hit["distance"], hit["id"]) for hit in response["hits"]] == expected
    assert [hit["matches"] for hit in response["hits"]] == [None] * 3
    assert response["took"]["encoding"] > 0
    again = search(client, image=as_base64(content), k=3)
    assert again["hits"] == response["hits"]
    assert search(client, embedding=embedding, k=3)["hits"] == response["hits"]


def test_a_symmetric_search_by_image_is_the_search_by_its_code(client, index_path, stored):
    content = (index_path.parent / "photos/1/2.png").read_bytes()
    by_code = search(client, code=stored.codes[6].tobytes().hex())
    assert by_code["ranking"] == "hamming"
    assert by_code["query"]["embedding"] is None
    symmetric = search(client, image=as_base64(content), symmetric=True)
    assert symmetric["hits"] == by_code["hits"]
    assert symmetric["ranking"] == "hamming"
    uploaded = client.post(
        f"{API}/search/image", files={"image": content}, data={"symmetric": "true"}
    )
    assert uploaded.json()["hits"] == by_code["hits"]


def test_a_radius_selects_by_bits_and_the_embedding_orders(client, stored):
    embedding = np.linspace(0.05, 0.95, 24).tolist()
    everything = search(client, embedding=embedding, k=100)["hits"]
    radius = sorted(hit["hamming"] for hit in everything)[len(everything) // 2]
    hits = search(client, embedding=embedding, radius=radius)["hits"]
    assert [hit["id"] for hit in hits] == [
        hit["id"] for hit in everything if hit["hamming"] <= radius
    ]
    assert [hit["rank"] for hit in hits] == list(range(1, len(hits) + 1))
    first = search(client, embedding=embedding, radius=radius, k=2)["hits"]
    assert first == hits[:2]


def test_search_by_code_equals_search_by_bits(client, stored):
    code = stored.codes[7]
    by_code = search(client, code=code.tobytes().hex(), k=12)
    bits = "".join(map(str, np.unpackbits(code)))
    by_bits = search(client, bits=bits, k=12)
    assert by_code["hits"] == by_bits["hits"]
    assert 7 in [hit["id"] for hit in by_code["hits"] if hit["distance"] == 0]


def test_radius_and_labels_restrict_the_hits(client):
    everything = search(client, id=0, k=100)["hits"]
    assert len(everything) == 11
    limit = everything[4]["distance"]
    near = search(client, id=0, k=100, radius=limit)["hits"]
    assert near == [hit for hit in everything if hit["distance"] <= limit]
    some = search(client, id=0, k=100, labels=["1", "2"])["hits"]
    assert sorted(hit["id"] for hit in some) == list(range(4, 12))


def test_a_response_says_how_many_items_were_searched(client):
    everything = search(client, id=0, k=2)
    assert (everything["count"], everything["n_with_labels"]) == (12, None)
    some = search(client, id=0, k=2, labels=["1", "2"])
    assert (some["count"], some["n_with_labels"]) == (12, 8)


def test_an_unknown_label_is_refused_and_similar_ones_are_named(tmp_path):
    with create_index(tmp_path / "birds.orbit", 8) as index:
        labels = ("Horned_Lark", "Elegant_Tern", "wren")
        index.add(codes=[[i] for i in range(3)], metadata=[Metadata(labels=(x,)) for x in labels])
    with client_of(tmp_path / "birds.orbit") as client:
        for wanted, reason in [
            (["wrem"], "no item has the label 'wrem'; did you mean wren?"),
            (["wren", "horned lark"], "'horned lark'; did you mean Horned_Lark?"),
            (
                ["dodo"],
                "no item has the label 'dodo'; the labels are Elegant_Tern, Horned_Lark, wren",
            ),
        ]:
            by_id = client.post(f"{API}/search", json={"id": 0, "labels": wanted})
            sampled = client.get(f"{API}/sample", params={"labels": wanted})
            batch = {"searches": [{"id": 0}, {"id": 0, "labels": wanted}]}
            batched = client.post(f"{API}/search/batch", json=batch)
            for response in (by_id, sampled, batched):
                assert response.status_code == 422
                assert reason in response.json()["detail"]


def test_an_empty_radius_says_how_far_the_nearest_item_is(tmp_path):
    with create_index(tmp_path / "far.orbit", 8) as index:
        metadata = [Metadata(labels=(label,)) for label in ("a", "a", "b")]
        index.add(codes=[[0b0], [0b111], [0b11111]], metadata=metadata)
    with client_of(tmp_path / "far.orbit") as client:
        assert search(client, id=0, radius=2)["nearest_distance"] == 3
        assert search(client, id=0, radius=2, labels=["b"])["nearest_distance"] == 5
        assert search(client, code="80", radius=0)["nearest_distance"] == 1
        assert search(client, id=0, radius=3)["nearest_distance"] is None  # it is a hit
        assert search(client, id=2, radius=8, labels=["b"])["nearest_distance"] is None  # no other


def test_images_are_encoded_by_a_backbone_and_a_hasher(tmp_path):
    coloured(tmp_path / "photos", classes=3, per_class=8)
    run_folder, index_folder = str(tmp_path / "run"), str(tmp_path / "birds.orbit")
    backbone = load_photo_backbone("small-cnn", to_train=True).eval()
    photos = sorted((tmp_path / "photos").rglob("*.png"))
    features = np.random.default_rng(0).normal(size=(40, backbone.n_features))
    hasher = HASHERS["itq"](n_bits=16, random_state=0).fit(features)
    ImageEncoder(backbone, hasher).save(run_folder)
    assert run(["index", run_folder, str(tmp_path / "photos"), "--out", index_folder]) == 0
    with client_of(tmp_path / "birds.orbit") as client:
        assert client.get(f"{API}/about").json()["takes_images"] is True
        for i in (0, 13):
            files = {"image": photos[i].read_bytes()}
            response = client.post(f"{API}/search/image", files=files, data={"k": 24}).json()
            at_0 = [hit["name"] for hit in response["hits"] if hit["hamming"] == 0]
            assert f"{photos[i].parent.name}/{photos[i].name}" in at_0


def test_default_k_is_ten_and_a_radius_alone_returns_all_within_it(client, index_path):
    content = (index_path.parent / "photos/1/2.png").read_bytes()

    def n_hits(**options):
        uploaded = client.post(f"{API}/search/image", files={"image": content}, data=options)
        by_image = search(client, image=as_base64(content), **options)
        assert uploaded.json()["hits"] == by_image["hits"]
        return len(by_image["hits"])

    assert n_hits() == 10
    assert n_hits(radius=24) == 12
    assert n_hits(radius=24, k=3) == 3
    with client_of(index_path, ServeSettings(limits=Limits(rate=0, k=7))) as limited:
        assert len(search(limited, id=0, radius=24)["hits"]) == 7
        assert len(search(limited, id=0)["hits"]) == 7


def test_batch_responses_equal_single_searches_in_order(client, stored, index_path):
    image = as_base64((index_path.parent / "photos/0/1.png").read_bytes())
    searches = [
        {"id": 3, "k": 2},
        {"image": image, "k": 2},
        {"code": stored.codes[9].tobytes().hex(), "labels": ["2"]},
        {"id": 8, "k": 4, "radius": 7},
    ]
    batch = client.post(f"{API}/search/batch", json={"searches": searches}).json()["answers"]
    for response, request in zip(batch, searches, strict=True):
        assert response["hits"] == search(client, **request)["hits"]


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({}, "exactly one of image, embedding, id, code, bits; got 0"),
        ({"id": 1, "code": "00ff00"}, "exactly one of image, embedding, id, code, bits; got 2"),
        ({"embedding": [0.5] * 23}, "got an embedding of 23 numbers; codes here have 24 bits"),
        ({"embedding": [0.5] * 23 + [1.5]}, "embedding.23: "),
        ({"embedding": [0.5] * 2000}, "has 2000 entries; at most 1024"),
        ({"id": 1, "radius": 25}, "the codes have 24 bits"),
        ({"id": 1, "k": 0}, "k: "),
        ({"id": 1, "k": 1001}, "at most 1000"),
        ({"id": "one"}, "id: "),
        ({"id": 2**63}, "id: "),
        ({"id": 1, "size": 3}, "size: "),
        ({"code": "00ff"}, "2 bytes; 24 bits need 3"),
        ({"code": "xyz"}, "code: "),
        ({"bits": "0101"}, "got 4 bits; codes here have 24"),
        ({"image": "not base64!"}, "not base64"),
        ({"image": as_base64(b"no image")}, "not an image of a known format"),
        ({"id": 1, "radius": -1}, "radius: "),
        ({"id": 1, "labels": "1"}, "labels: "),
    ],
)
def test_invalid_searches_are_rejected_with_a_reason(client, request_, reason):
    response = client.post(f"{API}/search", json=request_)
    assert response.status_code == 422
    assert reason in response.json()["detail"]


def test_unknown_id_is_404(client):
    response = client.post(f"{API}/search", json={"id": 4711})
    assert response.status_code == 404
    assert "4711" in response.json()["detail"]


def test_items_removed_during_a_search_are_left_out(index_path):
    class Shrinking:
        """An index from which items disappear after each search."""

        def __init__(self, index):
            self._index, self._gone = index, set()

        def __getattr__(self, name):
            return getattr(self._index, name)

        def search(self, *arguments):
            found = self._index.search(*arguments)
            self._gone = {int(found.ids[0, 1]), int(found.ids[0, 4])}
            return found

        def get(self, ids):
            if gone := self._gone & set(ids.tolist()):
                raise UnknownIdError(min(gone))
            return self._index.get(ids)

    with open_index(index_path) as index:
        shrinking = Shrinking(index)
        ids, complete = (
            [hit.id for hit in find(each, [Query(k=6, id=5)])[0].hits]
            for each in (shrinking, index)
        )
        assert ids == [i for i in complete if i not in shrinking._gone]
        shrinking._gone = set()
        (response,) = find(shrinking, [Query(id=5, k=6)])
        assert [hit.rank for hit in response.hits] == list(range(1, len(ids) + 1))


def test_padding_bits_must_be_zero(tmp_path):
    with client_of(picture_index(tmp_path, classes=1, n_bits=12)) as client:
        response = client.post(f"{API}/search", json={"code": "fff1"})
        assert response.status_code == 422
        assert client.post(f"{API}/search", json={"code": "fff0"}).status_code == 200


def test_all_lossless_formats_give_the_same_code(client):
    image = Image.new("RGB", (30, 20), "teal")
    codes = set()
    for image_format in ("PNG", "BMP", "GIF", "TIFF", "WEBP"):
        options = {"lossless": True} if image_format == "WEBP" else {}
        files = {"image": as_bytes(image, image_format, **options)}
        codes.add(client.post(f"{API}/search/image", files=files).json()["query"]["code"])
    assert len(codes) == 1
