import numpy as np
import pytest
from PIL import Image

from orbithash.errors import InputError
from orbithash.index import open_index
from orbithash.retrieval.query import answers
from orbithash.serve.questions import Question, ask
from served_indexes import API, as_base64, as_bytes, client_of, picture_index


@pytest.fixture(scope="module")
def stored(place):
    with open_index(place) as index:
        (items,) = index.iterate()
    return items


def search(client, **request):
    answer = client.post(f"{API}/search", json=request)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_an_item_finds_the_others_by_distance_and_not_itself(client, stored):
    answer = search(client, id=5, k=6)
    distances = np.unpackbits(stored.codes ^ stored.codes[5], axis=1).sum(axis=1)
    expected = sorted((int(d), i) for i, d in enumerate(distances) if i != 5)[:6]
    assert [(hit["distance"], hit["id"]) for hit in answer["hits"]] == expected
    assert [hit["rank"] for hit in answer["hits"]] == [1, 2, 3, 4, 5, 6]
    assert answer["query"]["item"]["id"] == 5
    assert answer["query"]["code"] == stored.codes[5].tobytes().hex()
    for hit in answer["hits"]:
        assert hit["matches"] == (hit["labels"] == ["1"])
        assert hit["code"] == stored.codes[hit["id"]].tobytes().hex()
        assert hit["name"] == f"{hit['labels'][0]}/{hit['id'] % 4}.png"
        assert hit["picture"] is True


def test_an_uploaded_image_finds_its_own_code_first(client, place, stored):
    content = (place.parent / "photos/1/2.png").read_bytes()
    answer = client.post(f"{API}/search/image", files={"image": content}, data={"k": 3}).json()
    assert answer["query"] == {"code": stored.codes[6].tobytes().hex(), "item": None}
    assert answer["hits"][0]["distance"] == 0
    assert [hit["matches"] for hit in answer["hits"]] == [None] * 3
    assert answer["took"]["encoding"] > 0
    again = search(client, image=as_base64(content), k=3)
    assert again["hits"] == answer["hits"]


def test_code_and_bits_of_an_item_find_it_too(client, stored):
    code = stored.codes[7]
    by_code = search(client, code=code.tobytes().hex(), k=12)
    bits = "".join(map(str, np.unpackbits(code)))
    by_bits = search(client, bits=bits, k=12)
    assert by_code["hits"] == by_bits["hits"]
    assert 7 in [hit["id"] for hit in by_code["hits"] if hit["distance"] == 0]


def test_radius_and_labels_narrow_the_search(client):
    everything = search(client, id=0, k=100)["hits"]
    assert len(everything) == 11
    limit = everything[4]["distance"]
    near = search(client, id=0, k=100, radius=limit)["hits"]
    assert near == [hit for hit in everything if hit["distance"] <= limit]
    some = search(client, id=0, k=100, labels=["1", "2"])["hits"]
    assert sorted(hit["id"] for hit in some) == list(range(4, 12))
    assert search(client, id=0, labels=["no such label"])["hits"] == []


def test_a_batch_gives_the_answers_of_its_searches_in_their_order(client, stored, place):
    image = as_base64((place.parent / "photos/0/1.png").read_bytes())
    searches = [
        {"id": 3, "k": 2},
        {"image": image, "k": 2},
        {"code": stored.codes[9].tobytes().hex(), "labels": ["2"]},
        {"id": 8, "k": 4, "radius": 7},
    ]
    answers = client.post(f"{API}/search/batch", json={"searches": searches}).json()["answers"]
    for answer, request in zip(answers, searches, strict=True):
        assert answer["hits"] == search(client, **request)["hits"]


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        ({}, "exactly one of image, id, code, bits; got 0"),
        ({"id": 1, "code": "00ff00"}, "exactly one of image, id, code, bits; got 2"),
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
def test_what_cannot_be_asked_is_refused_in_one_sentence(client, request_, says):
    answer = client.post(f"{API}/search", json=request_)
    assert answer.status_code == 422
    assert says in answer.json()["detail"]


def test_an_id_that_is_not_there_is_not_found(client):
    answer = client.post(f"{API}/search", json={"id": 4711})
    assert answer.status_code == 404
    assert "4711" in answer.json()["detail"]


def test_what_others_remove_during_a_search_is_left_out(place):
    class Shrinking:
        """An index from which something is removed after each search."""

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
                raise InputError(f"no item {min(gone)}")
            return self._index.get(ids)

    with open_index(place) as index:
        shrinking = Shrinking(index)
        (reply,) = ask(shrinking, [Question(k=6, id=5)])
        whole = [found.id for found in ask(index, [Question(k=6, id=5)])[0].found]
        assert [found.id for found in reply.found] == [i for i in whole if i not in shrinking._gone]
        shrinking._gone = set()
        (answer,) = answers(shrinking, like=[5], k=6)
        assert [hit.rank for hit in answer.hits] == list(range(1, len(reply.found) + 1))


def test_a_stray_bit_behind_the_code_is_refused(tmp_path):
    with client_of(picture_index(tmp_path, classes=1, n_bits=12)) as client:
        answer = client.post(f"{API}/search", json={"code": "fff1"})
        assert answer.status_code == 422
        assert client.post(f"{API}/search", json={"code": "fff0"}).status_code == 200


def test_the_same_picture_in_another_format_is_read_as_well(client):
    image = Image.new("RGB", (30, 20), "teal")
    codes = set()
    for kind in ("PNG", "BMP", "GIF", "TIFF", "WEBP"):
        options = {"lossless": True} if kind == "WEBP" else {}
        files = {"image": as_bytes(image, kind, **options)}
        codes.add(client.post(f"{API}/search/image", files=files).json()["query"]["code"])
    assert len(codes) == 1
