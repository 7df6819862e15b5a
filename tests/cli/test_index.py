import os
import subprocess
import sys

import numpy as np
import pytest

import orbithash
from feature_files import write_clouds
from image_files import class_folder, noise, save
from indexed_runs import feature_run, image_run
from orbithash.cli import run
from orbithash.encoders.runs.model_file import rebuilt


@pytest.fixture(scope="module")
def birds_run(tmp_path_factory):
    return image_run(tmp_path_factory.mktemp("runs") / "birds")


@pytest.fixture
def photos(tmp_path):
    return class_folder(tmp_path / "photos", {"0": 3, "1": 3})


@pytest.fixture
def out(tmp_path):
    return tmp_path / "birds.orbit"


def index(run_folder, source, out, *more) -> int:
    return run(["index", str(run_folder), str(source), "--out", str(out), *more])


def test_a_second_call_encodes_only_new_and_changed_images(birds_run, photos, out, capsys):
    assert index(birds_run, photos, out) == 0
    assert "6 new, 0 changed, 0 as before, 0 gone." in capsys.readouterr().out
    assert index(birds_run, photos, out) == 0
    assert "0 new, 0 changed, 6 as before, 0 gone." in capsys.readouterr().out

    before = codes_by_path(out)
    save(noise((30, 30), seed=7), photos / "0" / "0.jpg")
    save(noise((30, 30), seed=8), photos / "1" / "another.jpg")
    (photos / "1" / "2.jpg").unlink()
    assert index(birds_run, photos, out) == 0
    printed = capsys.readouterr().out
    assert "1 new, 1 changed, 4 as before, 1 gone." in printed
    assert f"{photos / '1' / '2.jpg'} (id 5)" in printed
    after = codes_by_path(out)
    assert after.keys() - before.keys() == {str(photos / "1" / "another.jpg")}
    assert str(photos / "1" / "2.jpg") in after
    expected = orbithash.load(birds_run).encode([photos / "0" / "0.jpg"])
    assert after[str(photos / "0" / "0.jpg")] == (0, ("0",), expected.tobytes())

    assert index(birds_run, photos, out, "--prune") == 0
    assert "Removed, because they are gone" in capsys.readouterr().out
    assert str(photos / "1" / "2.jpg") not in codes_by_path(out)


def test_the_encoder_is_loaded_once(birds_run, photos, out, monkeypatch):
    loaded = []
    monkeypatch.setattr(
        "orbithash.encoders.runs.model_file.rebuilt",
        lambda *parts: loaded.append(parts) or rebuilt(*parts),
    )
    assert index(birds_run, photos, out) == 0
    assert len(loaded) == 1


def test_an_item_of_another_source_is_not_gone(birds_run, photos, out, tmp_path, capsys):
    class_folder(tmp_path / "more", {"0": 3, "1": 3})
    index(birds_run, photos, out)
    assert index(birds_run, tmp_path / "more", out, "--prune") == 0
    assert "6 new, 0 changed, 0 as before, 0 gone." in capsys.readouterr().out
    assert len(codes_by_path(out)) == 12


def test_a_folder_is_the_same_from_any_working_directory(
    birds_run, photos, out, tmp_path, monkeypatch, capsys
):
    index(birds_run, photos, out)
    capsys.readouterr()
    for folder in (tmp_path, photos / "0"):
        monkeypatch.chdir(folder)
        assert index(birds_run, os.path.relpath(photos), out) == 0
        assert "0 new, 0 changed, 6 as before, 0 gone." in capsys.readouterr().out
    table = tmp_path / "lists" / "photos.csv"
    table.parent.mkdir()
    table.write_text("path,labels\n../photos/0/0.jpg,robin\n")
    assert index(birds_run, table, tmp_path / "table.orbit") == 0
    assert list(codes_by_path(tmp_path / "table.orbit")) == [str(photos / "0" / "0.jpg")]


def test_a_new_label_is_a_change(birds_run, photos, out, tmp_path, capsys):
    table = tmp_path / "photos.csv"
    rows = [f"photos/{path.relative_to(photos)}" for path in sorted(photos.rglob("*.jpg"))]
    table.write_text("path,labels\n" + "".join(f"{row},robin;small\n" for row in rows))
    index(birds_run, table, out)
    table.write_text(table.read_text().replace("0.jpg,robin;small", "0.jpg,wren;small"))
    assert index(birds_run, table, out) == 0
    assert "0 new, 2 changed, 4 as before" in capsys.readouterr().out
    assert codes_by_path(out)[str(photos / "0" / "0.jpg")][1] == ("small", "wren")


def test_a_folder_needs_no_classes(birds_run, tmp_path, out):
    for name in ("loose.png", "beach/1.png", "beach/deeper/2.png"):
        save(noise((20, 20)), tmp_path / "holiday" / name)
    assert index(birds_run, tmp_path / "holiday", out) == 0
    labels = {
        path.rpartition("/")[2]: labels for path, (_, labels, _) in codes_by_path(out).items()
    }
    assert labels == {"loose.png": (), "1.png": ("beach",), "2.png": ("beach",)}


def test_an_unreadable_image_is_reported_and_tried_again(birds_run, photos, out, capsys):
    (photos / "0" / "1.jpg").write_bytes(b"no image")
    assert index(birds_run, photos, out) == 0
    printed = capsys.readouterr().out
    assert "5 new" in printed
    assert "Left out 1 images that cannot be read:" in printed
    save(noise((20, 20)), photos / "0" / "1.jpg")
    assert index(birds_run, photos, out) == 0
    assert "1 new, 0 changed, 5 as before" in capsys.readouterr().out


def test_items_are_removed_by_id(birds_run, photos, out, capsys):
    index(birds_run, photos, out)
    assert run(["index", "--out", str(out), "--remove", "2", "--remove", "77"]) == 0
    assert "Removed 1 of 2 items; 5 are left." in capsys.readouterr().out
    assert [i for i, *_ in codes_by_path(out).values()] == [0, 1, 3, 4, 5]


def test_an_invalid_id_is_rejected_and_nothing_is_removed(birds_run, photos, out, capsys):
    index(birds_run, photos, out)
    assert run(["index", "--out", str(out), "--remove", "2", "--remove", "9" * 20]) == 2
    assert "99999999999999999999 is no id" in capsys.readouterr().err
    assert len(codes_by_path(out)) == 6


def test_features_are_indexed_with_their_paths_and_labels(tmp_path, out, capsys):
    features = write_clouds(tmp_path / "clouds.npz", classes=3, per_class=4)
    assert index(feature_run(tmp_path / "run"), features, out) == 0
    assert "12 new" in capsys.readouterr().out
    assert codes_by_path(out)["5.jpg"][:2] == (5, ("1",))
    arrays = dict(np.load(features))
    arrays["features"][5] += 1
    np.savez(features, **arrays)
    index(tmp_path / "run", features, out)
    assert "0 new, 1 changed, 11 as before, 0 gone." in capsys.readouterr().out


def test_codes_of_another_encoder_are_not_mixed_in(birds_run, photos, out, tmp_path, capsys):
    index(birds_run, photos, out)
    assert index(image_run(tmp_path / "other", seed=1), photos, out) == 2
    assert "holds codes of another encoder" in capsys.readouterr().err
    assert len(codes_by_path(out)) == 6


def test_an_index_holds_its_encoder(birds_run, photos, out):
    index(birds_run, photos, out)
    images = [photos / "0" / "0.jpg"]
    np.testing.assert_array_equal(
        orbithash.load(out).encode(images), orbithash.load(birds_run).encode(images)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["index", "--out", "x.orbit"], "give RUN and SOURCE, or --remove ID"),
        (["index", "a", "b", "c", "--out", "x.orbit"], "got c after RUN and SOURCE"),
        (["index", "--codes", "--out", "x.orbit"], "--codes needs files"),
        (["index", "--codes", "none.npy", "--out", "x.orbit"], "there is no file none.npy"),
        (["index", "--new-ids", "a", "b", "--out", "x.orbit"], "--new-ids is for --codes"),
        (["index", "--compact", "--out", "none.orbit"], "there is no index none.orbit"),
        (["index", "none", "--out", "x.orbit"], "got none alone; give both RUN and SOURCE"),
        (
            ["index", "--out", "x.orbit", "--remove", "17", "18"],
            "got 18 alone; give both RUN and SOURCE, or to remove several items repeat --remove",
        ),
        (
            ["index", "--out", "x.orbit", "--prune", "--remove", "17"],
            "--prune removes what is gone",
        ),
        (["index", "none", "photos", "--out", "x.orbit"], "none"),
        (
            ["index", "none", "photos", "--out", "milvus:localhost/x"],
            "milvus:http://HOST:19530/NAME",
        ),
        (["index", "--out", "none.orbit", "--remove", "3"], "there is no index none.orbit"),
    ],
)
def test_wrong_usage_is_one_line_and_creates_nothing(
    arguments, message, birds_run, photos, monkeypatch, capsys
):
    monkeypatch.chdir(photos.parent)
    if "milvus" in arguments[-1]:
        arguments[1] = str(birds_run)
    before = sorted(photos.parent.iterdir())
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert sorted(photos.parent.iterdir()) == before


@pytest.mark.parametrize("command", ["index", "search"])
def test_help_does_not_wait_for_torch(command):
    code = (
        f"import sys; from orbithash.cli import run; code = run(['{command}', '--help']); "
        "sys.exit(code or bool({'torch', 'numba'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def codes_by_path(out) -> dict[str, tuple[int, tuple[str, ...], bytes]]:
    with orbithash.open_index(out) as opened:
        return {
            metadata.path: (int(i), metadata.labels, code.tobytes())
            for items in opened.iterate()
            for i, code, metadata in zip(items.ids, items.codes, items.metadata, strict=True)
        }


def test_a_read_only_index_is_searched_but_not_changed(birds_run, photos, out, capsys, monkeypatch):
    assert index(birds_run, photos, out) == 0
    (out / "index.sqlite-shm").mkdir()  # SQLite cannot create its files, not even as root
    save(noise((40, 30), seed=9), photos / "0" / "new.jpg")
    monkeypatch.setattr(os, "access", lambda path, mode: path != out / "index.sqlite")
    monkeypatch.setattr("orbithash.encoders.ImageEncoder.embed_rows", None)  # fails before encoding
    capsys.readouterr()
    for arguments in (["index", str(birds_run), str(photos)], ["index", "--remove", "0"]):
        assert run([*arguments, "--out", str(out)]) == 1
        error = capsys.readouterr().err
        assert f"orbithash: {out} is read-only and can only be searched" in error
        assert error.count("\n") == 1
    assert run(["search", str(out), str(photos / "0" / "1.jpg"), "-k", "1", "--json"]) == 0
    assert '"hamming": 0' in capsys.readouterr().out


def test_codes_of_files_are_indexed_compacted_and_checked(tmp_path, capsys):
    codes = np.random.default_rng(0).integers(0, 256, (500, 8), dtype=np.uint8)
    np.save(tmp_path / "a.npy", codes[:300])
    np.savez(tmp_path / "b.npz", codes=codes[300:], n_bits=64)
    out = str(tmp_path / "codes.orbit")
    files = ["--codes", str(tmp_path / "a.npy"), str(tmp_path / "b.npz")]
    assert run(["index", *files, "--bits", "64", "--out", out]) == 0
    assert "500 codes of 64 bits:" in capsys.readouterr().out
    assert run(["index", *files, "--bits", "64", "--out", out]) == 0
    assert "0 new, 0 changed, 200 as before" in capsys.readouterr().out
    assert run(["index", "--remove", "7", "--compact", "--check", "--out", out]) == 0
    printed = capsys.readouterr().out
    assert "499 codes in one file" in printed
    assert "All 499 codes and their metadata are as written." in printed
    assert run(["search", out, "--like", "499", "-k", "1", "--json"]) == 0
    (segment,) = (tmp_path / "codes.orbit").glob("codes-*")
    content = bytearray(segment.read_bytes())
    content[5000] ^= 1
    segment.write_bytes(content)
    capsys.readouterr()
    assert run(["index", "--check", "--out", out]) == 2
    shown = capsys.readouterr()
    assert f"{segment.name} has codes 0 to 498 that are not as written" in shown.out
    assert "restore it from a copy, or save the intact items" in shown.err


def test_codes_of_a_file_are_searched_with_the_encoder_of_a_run(birds_run, photos, tmp_path):
    encoder = orbithash.load(birds_run)
    images = sorted(photos.rglob("*.jpg"))
    paths = np.array([str(path) for path in images])
    np.savez(tmp_path / "c.npz", codes=encoder.encode(images), n_bits=encoder.n_bits, paths=paths)
    out = tmp_path / "codes.orbit"
    assert (
        run(["index", str(birds_run), "--codes", str(tmp_path / "c.npz"), "--out", str(out)]) == 0
    )
    with orbithash.open_index(out) as index:
        (hit,) = index.query(images[2], k=1)
        assert hit.hamming == 0
