"""One query, one meaning: the command, `SearchIndex.query` and `find` return the same hits."""

import json
import re
from dataclasses import asdict

import numpy as np
import pytest

import orbithash
from coloured_images import coloured
from indexed_runs import image_run
from orbithash.cli import run
from orbithash.errors import InputError, UnknownLabelError
from orbithash.index import Metadata, Where, create_index
from orbithash.retrieval import Query, find
from orbithash.retrieval.query import nearest_distance

N_BITS = 24
LABEL = Where(labels=("1",))


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A folder with an index of 15 photographs of 3 classes."""
    folder = tmp_path_factory.mktemp("query")
    coloured(folder / "photos", classes=3, per_class=5)
    encoder = orbithash.load(image_run(folder / "run", n_bits=N_BITS))
    with orbithash.open_index(folder / "photos.orbit", encoder=encoder) as index:
        index.add_images(folder / "photos")
    return folder


@pytest.fixture
def index(photos):
    with orbithash.open_index(photos / "photos.orbit") as opened:
        yield opened


def test_ten_hits_take_few_statements_and_read_no_codes_from_disk(index):
    stored, statements = index.index, []
    find(stored, [Query(id=3)])
    stored._connection.set_trace_callback(statements.append)
    (result,), count = find(stored, [Query(id=4)]), len(stored)
    assert (len(result.hits), count) == (10, 15)
    assert len(statements) <= 16
    assert not any("blocks" in statement for statement in statements)


def literal_hits(index, code, *, without=None, k=10, radius=N_BITS, label=None, embedding=None):
    """Sort all items by distance and id, and keep those that the query wants."""
    (items,) = index.iterate()
    pairs = []
    for stored, i, metadata in zip(items.codes, items.ids.tolist(), items.metadata, strict=True):
        bits = np.unpackbits(stored)
        hamming = int((bits != np.unpackbits(code)).sum())
        distance = hamming if embedding is None else on_grid(embedding, bits)
        if i != without and hamming <= radius and label in (None, *metadata.labels):
            pairs.append((distance, i, hamming))
    return sorted(pairs)[:k]


def on_grid(embedding, bits):
    """Return the sum of |embedding − bit|, bit by bit, in units of 2^-32."""
    total = 0
    for h, bit in zip(embedding.astype(float).tolist(), bits.tolist(), strict=True):
        total += round(min(h, 1 - h) * 2**32)
        if (h > 0.5) != bit:
            total += round(abs(2 * h - 1) * 2**32)
    return total / 2**32


@pytest.mark.parametrize(
    ("arguments", "options", "expected"),
    [
        ({}, [], {}),
        ({"k": 3}, ["-k", "3"], {"k": 3}),
        ({"k": 100}, ["-k", "100"], {"k": 100}),
        ({"radius": 9}, ["--radius", "9"], {"radius": 9, "k": None}),
        ({"radius": 0}, ["--radius", "0"], {"radius": 0, "k": None}),
        ({"radius": N_BITS}, ["--radius", str(N_BITS)], {"k": None}),
        ({"radius": 9, "k": 2}, ["--radius", "9", "-k", "2"], {"radius": 9, "k": 2}),
        ({"where": LABEL}, ["--label", "1"], {"label": "1"}),
        ({"where": LABEL, "k": 2}, ["--label", "1", "-k", "2"], {"label": "1", "k": 2}),
        (
            {"where": LABEL, "radius": 12},
            ["--label", "1", "--radius", "12"],
            {"label": "1", "radius": 12, "k": None},
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("by", ["image", "code", "id"])
def test_command_index_and_find_return_the_same_hits(
    photos, index, capsys, by, arguments, options, expected
):
    image = photos / "photos" / "1" / "2.png"
    code, embedding = index.encoder.encode([image])[0], index.encoder.embed([image])[0]
    many = {"items": [image]}
    words = [str(image)]
    if by == "image":
        hits = index.query(image, **arguments)
        query = Query(embedding=embedding, **arguments)
        expected = expected | {"embedding": embedding}
    elif by == "code":
        hits = index.query(code=code, **arguments)
        query = Query(code, **arguments)
        arguments = arguments | {"symmetric": True}
        assert index.query(image, **arguments) == hits
        words += ["--symmetric"]
    else:
        hits = index.query(id=7, **arguments)
        query = Query(id=7, **arguments)
        expected = expected | {"without": 7}
        many, words = {"ids": [7]}, ["--like", "7"]
    literal = literal_hits(index, code, **expected)
    assert [(hit.distance, hit.id, hit.hamming) for hit in hits] == literal
    assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
    (result,) = find(index.index, [query])
    assert list(result.hits) == hits
    ((name, result),) = index.query_many(**many, **arguments)
    assert name == str(image)
    assert list(result.hits) == hits
    assert result.ranking == ("asymmetric" if by == "image" else "hamming")

    assert run(["search", str(photos / "photos.orbit"), *words, *options, "--json"]) == 0
    (printed,) = json.loads(capsys.readouterr().out)
    assert printed["query"] == str(image)
    assert printed["ranking"] == result.ranking
    shown = [asdict(hit) | {"labels": list(hit.labels)} for hit in hits]
    assert printed["hits"] == shown


def test_ten_are_found_by_default_and_all_within_a_radius(index):
    assert len(index.query(id=0)) == 10
    assert len(index.query(id=0, radius=N_BITS)) == len(index) - 1


def test_a_label_that_no_item_has_is_refused(photos, index, capsys):
    words = ["search", str(photos / "photos.orbit"), "--like", "7", "--label", "11"]
    message = "no item has the label '11'; did you mean 1?"
    assert run(words) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    where = Where(labels=("1", "11"))
    with pytest.raises(UnknownLabelError, match=re.escape(message)):
        index.query(id=7, where=where)
    with pytest.raises(UnknownLabelError, match="'11'"):
        find(index.index, [Query(id=7), Query(id=7, where=where)])


@pytest.mark.parametrize("where", [None, LABEL], ids=["all", "label"])
def test_the_nearest_distance_is_the_smallest(index, where):
    (items,) = index.iterate()
    label = where and "1"
    for i, code in zip(items.ids.tolist(), items.codes, strict=True):
        ((nearest, _, _),) = literal_hits(index, ~code, k=1, label=label)
        assert nearest_distance(index.index, ~code, where) == nearest
        ((nearest, _, _),) = literal_hits(index, code, k=1, label=label, without=i)
        assert nearest_distance(index.index, code, where, without=i) == nearest


def test_an_empty_index_has_no_nearest_distance(tmp_path):
    with create_index(tmp_path / "empty.orbit", 8) as empty:
        assert nearest_distance(empty, np.zeros(1, np.uint8), None) is None


def test_queries_of_different_parameters_are_answered_each_by_its_own(index):
    embedding = np.linspace(0, 1, N_BITS)
    queries = [
        Query(k=k, radius=radius, **given)
        for given in ({"id": 0}, {"id": 7}, {"embedding": embedding})
        for k in (None, 2)
        for radius in (None, 8)
    ]
    together = find(index.index, queries)
    for query, result in zip(queries, together, strict=True):
        (alone,) = find(index.index, [query])
        assert result.hits == alone.hits


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "got 0 of item, id and code"),
        ({"item": "a.jpg", "id": 1}, "got 2 of item, id and code"),
        ({"id": 1, "code": np.zeros(3, np.uint8)}, "got 2 of item, id and code"),
    ],
)
def test_a_query_is_exactly_one_of_item_id_and_code(index, arguments, message):
    with pytest.raises(InputError, match=message):
        index.query(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "k=0"),
        ({"radius": -1}, "radius=-1"),
        ({"radius": -1, "k": 3}, "radius=-1"),
        ({"radius": 25}, "24 bits"),
    ],
)
def test_a_query_of_nothing_is_rejected(index, arguments, message):
    with pytest.raises(InputError, match=message):
        index.query(id=0, **arguments)


def test_an_id_that_is_not_stored_and_a_code_of_another_length_are_rejected(index):
    with pytest.raises(InputError, match="no item with id 99"):
        index.query(id=99)
    with pytest.raises(InputError, match="bytes"):
        index.query(code=np.zeros(4, np.uint8))


def test_labels_that_no_item_has_are_rejected_with_those_that_may_be_meant(tmp_path):
    names = ["House Wren", "Rock Wren", "Robin", "Crow", "Gull", "Jay", "Tern"]
    code = np.zeros(2, np.uint8)
    create_index(tmp_path / "birds.orbit", 16).close()
    with orbithash.open_index(tmp_path / "birds.orbit") as index:
        index.add(codes=np.zeros((7, 2), np.uint8), metadata=[Metadata("", (n,)) for n in names])
        assert len(index.query(code=code, where=Where(labels=("Robin", "Crow")))) == 2
        for label, message in {
            "wren": "no item has the label 'wren'; did you mean House Wren or Rock Wren?",
            "robbin": "did you mean Robin?",
            "owl": "the labels are Crow, Gull, House Wren, Jay, Robin and 2 more",
        }.items():
            with pytest.raises(UnknownLabelError, match=re.escape(message)):
                index.query(code=code, where=Where(labels=("Robin", label)))
