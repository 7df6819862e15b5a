import json
import shutil

import numpy as np
import pytest
from PIL import Image

from coloured_images import coloured, write_table
from feature_files import clouds
from indexed_runs import feature_run, image_run
from orbithash.cli import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two sources in one index: photos and, with copies of two of them, more photos."""
    folder = tmp_path_factory.mktemp("duplicates")
    coloured(folder / "photos", classes=2, per_class=4)
    coloured(folder / "more", classes=1, per_class=4, seed=1)
    copies = (("0/1", "copy"), ("1/2", "[bold]"), ("1/2", "again"))
    for original, copy in copies:
        shutil.copy(folder / f"photos/{original}.png", folder / f"more/0/{copy}.png")
    image_run(folder / "run", n_bits=512)
    for source in ("photos", "more"):
        arguments = [str(folder / "run"), str(folder / source)]
        assert run(["index", *arguments, "--out", str(folder / "birds.orbit")]) == 0
    return folder


def found(capsys, *arguments):
    """Run the command and return its JSON, a line for each group."""
    capsys.readouterr()
    assert run(["duplicates", *map(str, arguments), "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def names(groups):
    return [sorted(item["path"].rpartition("/")[2] for item in group["items"]) for group in groups]


def test_copies_are_grouped_and_the_largest_group_comes_first(folder, capsys):
    groups = found(capsys, folder / "birds.orbit", "--radius", 0)
    assert names(groups) == [["2.png", "[bold].png", "again.png"], ["1.png", "copy.png"]]
    assert [(group["size"], group["spread"]) for group in groups] == [(3, 0), (2, 0)]
    first = groups[1]["items"][0]
    assert first == {
        "id": 1,
        "distance": 0,
        "path": str(folder / "photos" / "0" / "1.png"),
        "labels": ["0"],
    }


def test_a_radius_of_all_bits_makes_one_group(folder, capsys):
    (group,) = found(capsys, folder / "birds.orbit", "--radius", 512)
    assert group["size"] == 15
    assert group["spread"] == max(item["distance"] for item in group["items"]) > 0


def test_across_keeps_groups_with_items_of_both_sources_or_folders(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    index = ("birds.orbit", "--radius", 0)
    assert len(found(capsys, *index, "--across", "photos", "more")) == 2
    assert names(found(capsys, *index, "--across", folder / "photos" / "0", "more")) == [
        ["1.png", "copy.png"]
    ]
    assert found(capsys, *index, "--across", "photos/0", "photos/1") == []
    assert run(["duplicates", "birds.orbit", "--across", "photos", "none"]) == 2
    error = capsys.readouterr().err
    assert error == (
        "orbithash: no item of the index is from none; its sources are "
        f"{folder / 'photos'}, {folder / 'more'}: give two of them, or folders below them\n"
    )


def test_the_table_shows_groups_and_counts_the_rest(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    assert run(["duplicates", str(folder / "birds.orbit"), "--radius", "0"]) == 0
    printed = capsys.readouterr().out
    assert "more/0/[bold].png" in printed
    assert "2 groups hold 5 of 15 items, within 0 bits." in printed
    assert "--json" not in printed
    monkeypatch.setattr("orbithash.cli.duplicates.SHOWN", 1)
    monkeypatch.setattr("orbithash.cli.duplicates.SHOWN_ITEMS", 2)
    assert run(["duplicates", str(folder / "birds.orbit"), "--radius", "0"]) == 0
    printed = capsys.readouterr().out
    assert "… and 1 more" in printed
    assert "copy.png" not in printed
    assert "Shown are the 1 largest; --json prints all." in printed


def test_an_index_without_duplicates_says_so(folder, capsys, tmp_path):
    coloured(tmp_path / "photos", classes=1, per_class=4)
    arguments = [str(folder / "run"), str(tmp_path / "photos"), "--out", str(tmp_path / "x.orbit")]
    assert run(["index", *arguments]) == 0
    capsys.readouterr()
    assert run(["duplicates", str(tmp_path / "x.orbit"), "--radius", "0"]) == 0
    assert capsys.readouterr().out == "No such group within radius 0.\n"


def test_a_contact_sheet_has_a_row_for_each_group(folder, capsys, tmp_path):
    out = tmp_path / "sheet.png"
    found(capsys, folder / "birds.orbit", "--radius", 0, "--picture", out)
    with Image.open(out) as sheet:
        assert sheet.width > sheet.height  # three images in the first of two rows
        assert np.asarray(sheet)[20:120, 20:120].std() > 0
    assert run(["duplicates", str(folder / "birds.orbit"), "--picture", str(out)]) == 2
    assert "exists; add --force" in capsys.readouterr().err


def test_images_in_training_and_among_the_queries_are_found(folder, capsys, tmp_path):
    images = coloured(tmp_path / "photos", classes=2, per_class=4)  # the last of each is a query
    shutil.copy(tmp_path / "photos/0/3.png", tmp_path / "photos/1/1.png")
    shutil.copy(tmp_path / "photos/1/2.png", tmp_path / "photos/0/0.png")  # both in training
    table = write_table(images, tmp_path / "photos.csv")
    arguments = (table, "--encoder", folder / "run", "--radius", 0)
    groups = found(capsys, *arguments, "--between", "train", "query")
    assert names(groups) == [["1.png", "3.png"]]
    assert {item["path"][-5:]: item["split"] for item in groups[0]["items"]} == {
        "1.png": "train",
        "3.png": "query",
    }
    assert len(found(capsys, *arguments)) == 2
    assert len(found(capsys, *arguments, "--between", "train", "database")) == 1


def test_rows_that_are_in_both_splits_are_counted(capsys, tmp_path):
    arrays = clouds(classes=2, per_class=10)
    arrays["query"] = np.append(arrays["query"], arrays["train"][:3])
    np.savez(tmp_path / "clouds.npz", **arrays)
    feature_run(tmp_path / "run", n_bits=512)
    options = ["--encoder", str(tmp_path / "run"), "--between", "train", "query", "--radius", "0"]
    assert run(["duplicates", str(tmp_path / "clouds.npz"), *options]) == 0
    note = capsys.readouterr().err.splitlines()[-1]
    assert note == "3 rows are in train and in query by the split itself."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--radius", "513"], "the codes have 512 bits; give a whole number from 0 to 512"),
        (["--radius", "-1"], "--radius"),
        (["--between", "train", "query"], "give SOURCE and --encoder RUN"),
        (["--encoder", "RUN", "--across", "a", "b"], "give --between"),
        (["--encoder", "RUN", "--radius", "513"], "the codes have 512 bits"),
        (["--encoder", "RUN", "--between", "train", "test"], "there is no split 'test'"),
        (["--encoder", "RUN", "--between", "train", "validation"], "has no validation images"),
        (["--picture", "sheet.gif"], "ends in .png"),
    ],
)
def test_wrong_usage_is_one_line(folder, capsys, arguments, message):
    index = folder / ("photos" if "--encoder" in arguments else "birds.orbit")
    given = [str(folder / "run") if argument == "RUN" else argument for argument in arguments]
    assert run(["duplicates", str(index), *given]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
