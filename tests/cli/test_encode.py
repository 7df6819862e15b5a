import numpy as np
import pytest

from feature_files import write_clouds
from image_files import class_folder, noise, save
from indexed_runs import feature_run, image_run
from orbithash.cli import run
from orbithash.index import open_index


def encode(run_folder, source, out, shard):
    return run(["encode", str(run_folder), str(source), "--out", str(out), "--shard", shard])


def items(address):
    with open_index(address) as index:
        (stored,) = index.iterate()
        return stored.ids.tolist(), stored.codes.tolist(), stored.metadata


@pytest.mark.parametrize("new_ids", [True, False])
def test_shards_become_the_index_that_one_command_makes(tmp_path, capsys, new_ids):
    """Also with unreadable files, images outside class folders, and parts in any order."""
    birds, photos = (
        image_run(tmp_path / "birds"),
        class_folder(tmp_path / "photos", {"0": 4, "1": 3}),
    )
    save(noise((30, 30), seed=9), photos / "alone.jpg")
    for name in ("0/1.jpg", "1/2.jpg"):
        (photos / name).write_text("no image")
    parts = [tmp_path / f"part{number}.npz" for number in (1, 2, 3)]
    for number, part in enumerate(parts, start=1):
        assert encode(birds, photos, part, f"{number}/3") == 0
    covered = np.concatenate([np.load(part)["ids"] for part in parts])
    assert covered.tolist() == [0, 2, 3, 4, 5, 7]  # row numbers of the whole source
    lists = [part.with_name(f"{part.stem}.unreadable.txt") for part in parts]
    listed = [line for file in lists if file.exists() for line in file.read_text().splitlines()]
    assert [line.partition("\t")[0] for line in listed] == ["0/1.jpg", "1/2.jpg"]

    whole, joined = tmp_path / "whole.orbit", tmp_path / "joined.orbit"
    assert run(["index", str(birds), str(photos), "--out", str(whole)]) == 0
    order = [str(part) for part in (parts[2], parts[0], parts[1])]
    more = ["--new-ids"] if new_ids else []
    command = ["index", "--codes", str(birds), *order, *more, "--out", str(joined)]
    assert run(command) == 0
    ids, *others = items(joined)
    assert others == list(items(whole)[1:])
    assert ids == (items(whole)[0] if new_ids else covered.tolist())

    capsys.readouterr()
    assert run(["index", str(birds), str(photos), "--out", str(joined)]) == 0
    assert "0 new, 0 changed, 6 as before, 0 gone." in capsys.readouterr().out
    assert run(command) == 0  # storing the parts again changes nothing
    assert "gone:" not in capsys.readouterr().out
    assert items(joined)[1:] == tuple(others)


def test_shards_of_features_become_the_index_that_one_command_makes(tmp_path, capsys):
    source, encoder = write_clouds(tmp_path / "clouds.npz"), feature_run(tmp_path / "run")
    for number in (1, 2):
        assert encode(encoder, source, tmp_path / f"part{number}.npz", f"{number}/2") == 0
    whole, joined = tmp_path / "whole.orbit", tmp_path / "joined.orbit"
    assert run(["index", str(encoder), str(source), "--out", str(whole)]) == 0
    parts = [str(tmp_path / f"part{number}.npz") for number in (1, 2)]
    assert run(["index", "--codes", str(encoder), *parts, "--out", str(joined)]) == 0
    assert items(joined) == items(whole)
    assert "Not given" not in capsys.readouterr().out
    command = ["index", "--codes", str(encoder), parts[1], "--out", str(tmp_path / "half.orbit")]
    assert run(command) == 0
    assert "Not given, and so not stored by this command:\n  shard 1/2" in capsys.readouterr().out


def test_a_shard_without_any_readable_image_adds_nothing(tmp_path):
    birds, photos = (
        image_run(tmp_path / "birds"),
        class_folder(tmp_path / "photos", {"0": 2, "1": 2}),
    )
    for name in ("0/0.jpg", "0/1.jpg"):
        (photos / name).write_text("no image")
    parts = [tmp_path / f"part{number}.npz" for number in (1, 2)]
    for number, part in enumerate(parts, start=1):
        assert encode(birds, photos, part, f"{number}/2") == 0
    out = tmp_path / "x.orbit"
    assert run(["index", "--codes", str(birds), *map(str, parts), "--out", str(out)]) == 0
    assert items(out)[0] == [2, 3]


@pytest.mark.parametrize(
    ("shard", "message"),
    [
        ("3", "--shard is '3'; give a number and a count, such as 3/16"),
        ("0/4", "got shard 0/4; give 1/4 to 4/4"),
        ("5/4", "got shard 5/4; give 1/4 to 4/4"),
        ("1/1000", "shard 1/1000 of 100 items is empty; make at most 100 shards"),
    ],
)
def test_a_wrong_shard_is_refused(tmp_path, capsys, shard, message):
    source, encoder = write_clouds(tmp_path / "clouds.npz"), feature_run(tmp_path / "run")
    assert encode(encoder, source, tmp_path / "part.npz", shard) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "part.npz").exists()
