import json
import re

import numpy as np
import pytest
from PIL import Image

import orbithash
from coloured_images import coloured
from feature_files import write_clouds
from image_files import save
from indexed_runs import feature_run, image_run
from orbithash.cli import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with an index of 12 photographs of 3 classes."""
    folder = tmp_path_factory.mktemp("search")
    coloured(folder / "photos", classes=3, per_class=4)
    arguments = [str(image_run(folder / "run")), str(folder / "photos")]
    assert run(["index", *arguments, "--out", str(folder / "birds.orbit")]) == 0
    return folder


def search(folder, capsys, *arguments):
    """Run the command and return its JSON."""
    capsys.readouterr()
    assert run(["search", str(folder / "birds.orbit"), *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_an_image_finds_itself_first_and_the_others_by_distance(folder, capsys):
    image = folder / "photos" / "1" / "2.png"
    (result,) = search(folder, capsys, image, "-k", 5, "--symmetric")
    assert result["query"] == str(image)
    assert [hit["rank"] for hit in result["hits"]] == [1, 2, 3, 4, 5]
    pairs = [(hit["distance"], hit["id"]) for hit in result["hits"]]
    assert pairs == sorted(pairs)
    assert pairs[0][0] == 0
    with orbithash.open_index(folder / "birds.orbit") as index:
        (items,) = index.iterate()
    distances = np.unpackbits(items.codes ^ items.codes[6], axis=1).sum(axis=1)
    assert pairs == sorted((int(d), int(i)) for d, i in zip(distances, items.ids, strict=True))[:5]
    for hit in result["hits"]:
        assert hit["path"] == str(folder / "photos" / hit["labels"][0] / f"{hit['id'] % 4}.png")


def test_a_stored_item_is_not_among_its_own_results(folder, capsys):
    (result,) = search(folder, capsys, "--like", 6)
    assert result["query"] == str(folder / "photos" / "1" / "2.png")
    assert len(result["hits"]) == 10
    assert 6 not in [hit["id"] for hit in result["hits"]]


def test_labels_and_radius_select(folder, capsys):
    (result,) = search(folder, capsys, "--like", 0, "--label", 1, "--label", 2)
    assert sorted(hit["id"] for hit in result["hits"]) == list(range(4, 12))
    (everything,) = search(folder, capsys, "--like", 0, "--radius", 24)
    assert len(everything["hits"]) == 11
    limit = everything["hits"][4]["distance"]
    (near,) = search(folder, capsys, "--like", 0, "--radius", limit)
    assert near["hits"] == [hit for hit in everything["hits"] if hit["distance"] <= limit]
    (first,) = search(folder, capsys, "--like", 0, "--radius", limit, "-k", 2)
    assert first["hits"] == near["hits"][:2]


@pytest.mark.parametrize("engine", ["faiss", "faiss-ivf", "faiss-hnsw"])
def test_another_engine_finds_the_same_and_reports_if_it_is_approximate(folder, capsys, engine):
    expected = search(folder, capsys, "--like", 3)
    found = search(folder, capsys, "--like", 3, "--engine", engine)
    if engine == "faiss":
        assert found == expected
    assert [hit["distance"] for hit in found[0]["hits"]] == [
        hit["distance"] for hit in expected[0]["hits"]
    ]
    for output in ([], ["--json"]):
        arguments = ["search", str(folder / "birds.orbit"), "--like", "3", "--engine", engine]
        assert run(arguments + output) == 0
        error = capsys.readouterr().err
        assert ("is approximate: recall@10" in error) == (engine != "faiss")


@pytest.mark.parametrize("selection", [("--label", "1"), ("--radius", "24")])
def test_an_engine_that_is_not_used_is_neither_built_nor_reported(
    folder, capsys, monkeypatch, selection
):
    monkeypatch.setattr("orbithash.index.faiss.FaissGraphIndex.build", None)
    expected = search(folder, capsys, "--like", 3, *selection)
    arguments = ["search", str(folder / "birds.orbit"), "--like", "3", *selection, "--json"]
    assert run([*arguments, "--engine", "faiss-hnsw"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == expected
    assert printed.err == ""


def test_the_table_shows_rank_distance_path_and_labels(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    image = folder / "photos" / "2" / "1.png"
    assert run(["search", str(folder / "birds.orbit"), str(image), "-k", "1"]) == 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("rank", "distance", "bits", "path", "labels"))
    line = next(line for line in printed.splitlines() if line.strip().startswith("1 "))
    rank, distance, bits, _, path, label = line.split()
    assert (rank, bits) == ("1", "0")
    assert re.fullmatch(r"\d+\.\d{3}", distance)
    assert path.startswith(str(folder / "photos" / label))


def test_a_contact_sheet_shows_the_query_and_its_results(folder, capsys, tmp_path):
    out = tmp_path / "sheet.png"
    search(folder, capsys, "--like", 0, "--like", 5, "-k", 3, "--picture", out)
    with Image.open(out) as sheet:
        width, height = sheet.size
        # The query is the first cell of its row.
        corner = np.asarray(sheet)[20:120, 20:120]
    assert width > height
    assert corner.std() > 0
    assert run(["search", str(folder / "birds.orbit"), "--like", "0", "--picture", str(out)]) == 2
    assert "exists; add --force" in capsys.readouterr().err


def test_an_index_of_features_is_queried_by_features(tmp_path, capsys):
    features = write_clouds(tmp_path / "clouds.npz", classes=2, per_class=4)
    out = tmp_path / "birds.orbit"
    assert run(["index", str(feature_run(tmp_path / "run")), str(features), "--out", str(out)]) == 0
    found = search(tmp_path, capsys, features, "-k", 1)
    assert [result["query"] for result in found] == [f"{row}.jpg" for row in range(8)]
    assert all(result["hits"][0]["hamming"] == 0 for result in found)
    assert run(["search", str(out), "a.jpg"]) == 2
    assert "holds codes of features" in capsys.readouterr().err


def test_folders_and_quoted_patterns_are_searched_image_by_image(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "photos" / "2" / "notes.txt").touch()
    try:
        found = search(folder, capsys, "photos/0/1.png", "photos/1", "photos/2/*.png", "-k", 1)
        assert [result["query"] for result in found] == [
            "photos/0/1.png",
            *(f"photos/1/{number}.png" for number in range(4)),
            *(f"photos/2/{number}.png" for number in range(4)),
        ]
        assert all(result["hits"][0]["hamming"] == 0 for result in found)
        assert len(search(folder, capsys, "photos/", "-k", 1)) == 12
    finally:
        (folder / "photos" / "2" / "notes.txt").unlink()


def test_images_that_cannot_be_read_are_said_and_the_others_are_searched(folder, capsys, tmp_path):
    (tmp_path / "torn.jpg").write_text("no image")
    good = str(folder / "photos" / "1" / "2.png")
    expected = search(folder, capsys, good)
    queries = [str(tmp_path / "torn.jpg"), good, str(tmp_path / "none.jpg")]
    assert run(["search", str(folder / "birds.orbit"), *queries, "--json"]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out) == expected
    lines = [
        f"orbithash: cannot read {queries[0]}: not an image of a known format; give a JPEG or PNG",
        f"orbithash: cannot read {queries[2]}: No such file or directory; check the path",
    ]
    assert printed.err.splitlines() == lines
    assert run(["search", str(folder / "birds.orbit"), queries[0], queries[2]]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.splitlines()) == ("", lines)


def test_an_image_of_too_many_pixels_is_one_line(folder, capsys, tmp_path):
    image = save(Image.new("1", (10_000, 10_000)), tmp_path / "map.png")
    assert run(["search", str(folder / "birds.orbit"), str(image)]) == 2
    error = capsys.readouterr().err
    assert error == (
        f"orbithash: cannot read {image}: 10000 × 10000 pixels are more than 80,000,000; "
        "save a smaller copy\n"
    )


def test_an_empty_radius_says_how_far_the_nearest_is(folder, capsys):
    (everything,) = search(folder, capsys, "--like", 0, "--label", 2)
    nearest = everything["hits"][0]["distance"]
    assert nearest > 0
    arguments = ["--like", "0", "--label", "2", "--radius", str(nearest - 1)]
    assert run(["search", str(folder / "birds.orbit"), *arguments]) == 0
    assert capsys.readouterr().out == (
        f"{folder / 'photos' / '0' / '0.png'}: nothing within {nearest - 1} bits; "
        f"the nearest is {nearest} bit{'s' * (nearest != 1)} away\n"
    )
    assert search(folder, capsys, *arguments)[0]["hits"] == []


def test_an_index_without_other_items_says_so(folder, capsys, tmp_path):
    empty = str(tmp_path / "empty.orbit")
    orbithash.open_index(empty, encoder=orbithash.load(folder / "run")).close()
    image = str(folder / "photos" / "0" / "0.png")
    assert run(["search", empty, image]) == 0
    assert capsys.readouterr().out == f"{image}: nothing found; the index has no other items\n"
    assert run(["search", empty, image, "--label", "wren"]) == 2
    assert "the items of this index have no labels" in capsys.readouterr().err


def test_an_unknown_label_is_rejected_even_beside_a_known_one(folder, capsys):
    for labels in (["--label", "wren"], ["--label", "1", "--label", "wren"]):
        assert run(["search", str(folder / "birds.orbit"), "--like", "0", *labels]) == 2
        error = capsys.readouterr().err
        assert error == "orbithash: no item has the label 'wren'; the labels are 0, 1, 2\n"


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
def test_wrong_usage_is_one_line(folder, capsys, arguments, message):
    assert run(["search", str(folder / "birds.orbit"), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_folder_without_an_index_is_rejected(tmp_path, capsys):
    assert run(["search", str(tmp_path), "--like", "1"]) == 2
    assert "is no index" in capsys.readouterr().err
