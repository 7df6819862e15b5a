import json

import numpy as np
import pytest
from PIL import Image

import orbithash
from coloured_images import coloured
from feature_files import write_clouds
from indexed_runs import feature_run, image_run
from orbithash.cli import run


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with an index of 12 photographs of 3 classes."""
    place = tmp_path_factory.mktemp("search")
    coloured(place / "photos", classes=3, per_class=4)
    arguments = [str(image_run(place / "run")), str(place / "photos")]
    assert run(["index", *arguments, "--out", str(place / "birds.orbit")]) == 0
    return place


def search(place, capsys, *arguments):
    """What the command finds, as JSON."""
    capsys.readouterr()
    assert run(["search", str(place / "birds.orbit"), *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_an_image_finds_itself_first_and_the_rest_by_distance(place, capsys):
    image = place / "photos" / "1" / "2.png"
    (answer,) = search(place, capsys, image, "-k", 5)
    assert answer["query"] == str(image)
    assert [hit["rank"] for hit in answer["hits"]] == [1, 2, 3, 4, 5]
    pairs = [(hit["distance"], hit["id"]) for hit in answer["hits"]]
    assert pairs == sorted(pairs)
    assert pairs[0][0] == 0
    with orbithash.open_index(place / "birds.orbit") as index:
        (items,) = index.iterate()
    distances = np.unpackbits(items.codes ^ items.codes[6], axis=1).sum(axis=1)
    assert pairs == sorted((int(d), int(i)) for d, i in zip(distances, items.ids, strict=True))[:5]
    for hit in answer["hits"]:
        assert hit["path"] == str(place / "photos" / hit["labels"][0] / f"{hit['id'] % 4}.png")


def test_a_stored_item_is_asked_with_and_is_no_answer_to_itself(place, capsys):
    (answer,) = search(place, capsys, "--like", 6)
    assert answer["query"] == str(place / "photos" / "1" / "2.png")
    assert len(answer["hits"]) == 10
    assert 6 not in [hit["id"] for hit in answer["hits"]]


def test_labels_and_radius_narrow_the_search(place, capsys):
    (answer,) = search(place, capsys, "--like", 0, "--label", 1, "--label", 2)
    assert sorted(hit["id"] for hit in answer["hits"]) == list(range(4, 12))
    (everything,) = search(place, capsys, "--like", 0, "--radius", 24)
    assert len(everything["hits"]) == 11
    limit = everything["hits"][4]["distance"]
    (near,) = search(place, capsys, "--like", 0, "--radius", limit)
    assert near["hits"] == [hit for hit in everything["hits"] if hit["distance"] <= limit]
    (first,) = search(place, capsys, "--like", 0, "--radius", limit, "-k", 2)
    assert first["hits"] == near["hits"][:2]


@pytest.mark.parametrize("engine", ["faiss", "faiss-ivf", "faiss-hnsw"])
def test_another_engine_finds_the_same_and_says_if_it_may_not(place, capsys, engine):
    expected = search(place, capsys, "--like", 3)
    found = search(place, capsys, "--like", 3, "--engine", engine)
    if engine == "faiss":
        assert found == expected
    assert [hit["distance"] for hit in found[0]["hits"]] == [
        hit["distance"] for hit in expected[0]["hits"]
    ]
    for output in ([], ["--json"]):
        arguments = ["search", str(place / "birds.orbit"), "--like", "3", "--engine", engine]
        assert run(arguments + output) == 0
        error = capsys.readouterr().err
        assert ("is approximate: recall@10" in error) == (engine != "faiss")


@pytest.mark.parametrize("narrowed", [("--label", "1"), ("--radius", "24")])
def test_an_engine_that_is_not_used_is_not_built_and_not_spoken_of(
    place, capsys, monkeypatch, narrowed
):
    monkeypatch.setattr("orbithash.index.faiss.FaissGraphIndex.build", None)
    expected = search(place, capsys, "--like", 3, *narrowed)
    arguments = ["search", str(place / "birds.orbit"), "--like", "3", *narrowed, "--json"]
    assert run([*arguments, "--engine", "faiss-hnsw"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == expected
    assert printed.err == ""


def test_the_table_shows_rank_distance_path_and_labels(place, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    image = place / "photos" / "2" / "1.png"
    assert run(["search", str(place / "birds.orbit"), str(image), "-k", "1"]) == 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("rank", "distance", "path", "labels"))
    line = next(line for line in printed.splitlines() if line.strip().startswith("1 "))
    rank, distance, _, path, label = line.split()
    assert (rank, distance) == ("1", "0")
    assert path.startswith(str(place / "photos" / label))


def test_a_contact_sheet_shows_the_query_and_its_results(place, capsys, tmp_path):
    out = tmp_path / "sheet.png"
    search(place, capsys, "--like", 0, "--like", 5, "-k", 3, "--picture", out)
    with Image.open(out) as sheet:
        width, height = sheet.size
        # The same photograph opens the first row and is not one of its results.
        corner = np.asarray(sheet)[20:120, 20:120]
    assert width > height
    assert corner.std() > 0
    assert run(["search", str(place / "birds.orbit"), "--like", "0", "--picture", str(out)]) == 2
    assert "exists; add --force" in capsys.readouterr().err


def test_an_index_of_features_is_asked_with_features(tmp_path, capsys):
    features = write_clouds(tmp_path / "clouds.npz", classes=2, per_class=4)
    out = tmp_path / "birds.orbit"
    assert run(["index", str(feature_run(tmp_path / "run")), str(features), "--out", str(out)]) == 0
    found = search(tmp_path, capsys, features, "-k", 1)
    assert [answer["query"] for answer in found] == [f"{row}.jpg" for row in range(8)]
    assert all(answer["hits"][0]["distance"] == 0 for answer in found)
    assert run(["search", str(out), "a.jpg"]) == 2
    assert "holds codes of features" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give an image to search for, or --like ID"),
        (["none.jpg"], "none.jpg"),
        (["--like", "99"], "there is no item with id 99"),
        (["--like", "9" * 20], "99999999999999999999 is no id"),
        (["--like", "1", "--engine", "slow"], "choose one of exact"),
        (["--like", "1", "--picture", "sheet.gif"], "ends in .png"),
    ],
)
def test_wrong_usage_is_one_line(place, capsys, arguments, message):
    assert run(["search", str(place / "birds.orbit"), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_what_is_no_index_is_said_so(tmp_path, capsys):
    assert run(["search", str(tmp_path), "--like", "1"]) == 2
    assert "is no index" in capsys.readouterr().err
