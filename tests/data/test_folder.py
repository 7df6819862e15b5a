import errno
import logging
import os
from pathlib import Path

import numpy as np
import pytest

from image_files import class_folder, noise, save
from orbithash.data import all_images, class_folders, open_source, open_unlabelled
from orbithash.data.folder import images_named
from orbithash.errors import InputError


def test_folders_are_classes_in_alphabetical_order(tmp_path):
    pets = open_source(str(class_folder(tmp_path, {"dog": 3, "cat": 2})))
    assert pets.classes == ("cat", "dog")
    assert pets.paths == ("cat/0.jpg", "cat/1.jpg", "dog/0.jpg", "dog/1.jpg", "dog/2.jpg")
    assert pets.labels.tolist() == [0, 0, 1, 1, 1]


def test_a_class_that_cannot_be_listed_is_refused_and_not_left_out(tmp_path, monkeypatch, caplog):
    pets = class_folder(tmp_path / "pets", {"dog": 3, "cat/old": 2})
    scandir = os.scandir

    def refuse(path="."):
        if Path(os.fsdecode(path)) == pets / "cat" / "old":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(InputError, match=r"cannot list .*cat/old: Permission denied"):
        class_folders(pets)
    images = all_images(pets)
    assert len(images) == 3
    assert images.unlisted == {"cat/old": "Permission denied"}
    assert f"cannot list {pets / 'cat' / 'old'}: Permission denied" in caplog.text


def test_images_in_nested_folders_belong_to_the_top_level_folder(tmp_path):
    class_folder(tmp_path, {"cat": 2, "dog/large": 3})
    assert class_folders(tmp_path).classes == ("cat", "dog")


def test_about_a_fifth_of_each_class_are_queries_and_the_rest_trains_and_is_the_database(tmp_path):
    counts = {"cat": 60, "dog": 3, "emu": 2, "fox": 1}
    pets = class_folders(empty_files(tmp_path, counts))
    queries = np.bincount(pets.labels[pets.split.query], minlength=4).tolist()
    assert 6 <= queries[0] <= 18
    assert queries[1:] == [1, 0, 0]
    assert np.array_equal(pets.split.train, pets.split.database)
    rows = np.concatenate([pets.split.query, pets.split.database])
    assert np.array_equal(np.sort(rows), np.arange(66))


def test_adding_or_removing_images_does_not_move_others_between_training_and_queries(tmp_path):
    def parts():
        pets = class_folders(tmp_path)
        return ({pets.paths[row] for row in rows} for rows in (pets.split.query, pets.split.train))

    empty_files(tmp_path, {"cat": 30, "dog": 30})
    queries, trained = parts()
    empty_files(tmp_path, {"cat": 60, "ant": 30})
    (tmp_path / "dog" / "3.jpg").unlink()
    later_queries, later_trained = parts()
    assert not later_queries & trained
    assert not later_trained & queries
    assert len(later_queries) > len(queries)


def empty_files(folder, counts):
    """Create class folders of empty files; only their names are used."""
    for name, count in counts.items():
        (folder / name).mkdir(exist_ok=True)
        for number in range(count):
            (folder / name / f"{number}.jpg").touch()
    return folder


def test_the_split_depends_only_on_the_seed(tmp_path):
    class_folder(tmp_path, {"cat": 12, "dog": 12})
    first, again, other = (class_folders(tmp_path, seed=seed).split.query for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_files_that_are_not_images_are_skipped(tmp_path, caplog):
    class_folder(tmp_path, {"cat": 3, ".hidden": 2})
    (tmp_path / "cat/notes.txt").touch()
    (tmp_path / "cat/.0.jpg").touch()
    (tmp_path / "empty").mkdir()
    save(noise((8, 8)), tmp_path / "loose.PNG")
    with caplog.at_level(logging.WARNING):
        assert class_folders(tmp_path).paths == ("cat/0.jpg", "cat/1.jpg", "cat/2.jpg")
    assert f"{tmp_path}: 3 images; skipped 1 file: 1 .txt\n" in caplog.text
    assert "1 images outside of any class folder" in caplog.text
    assert "1 folders without images, for example empty" in caplog.text


@pytest.mark.parametrize("opened", [open_source, open_unlabelled])
def test_skipped_files_are_counted_by_extension(tmp_path, caplog, monkeypatch, opened):
    without_heif(monkeypatch)
    class_folder(tmp_path, {"cat": 3, "dog": 1})
    for name in (
        *(f"cat/IMG_{number}.HEIC" for number in range(9)),
        *("dog/a.txt", "dog/b.TXT", "notes.txt", "dog/Makefile"),
        *("cat/.DS_Store", "cat/Thumbs.db", ".git/config", "dog/.cache/0.jpg"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "dog" / "lost.jpg").symlink_to("nowhere")
    assert len(opened(tmp_path)) == 4
    (record,) = caplog.records
    assert record.getMessage() == (
        f"{tmp_path}: 4 images; skipped 14 files: 9 .heic (install orbithash[heif] to read them), "
        "3 .txt, 1 broken link, 1 without extension"
    )


def test_a_folder_of_images_alone_gives_no_warning(tmp_path, caplog):
    class_folder(tmp_path, {"cat": 3, "dog": 1})
    open_unlabelled(tmp_path)
    open_source(tmp_path)
    assert not caplog.records


def test_many_kinds_of_skipped_files_are_still_one_line(tmp_path, caplog):
    class_folder(tmp_path, {"cat": 1})
    for letter in "abcdefghij":
        (tmp_path / "cat" / f"1.{letter}").touch()
    all_images(tmp_path)
    (record,) = caplog.records
    assert record.getMessage().endswith("1 .a, 1 .b, 1 .c, 1 .d, 1 .e, 1 .f, 4 others")


@pytest.mark.parametrize("opened", [open_source, open_unlabelled])
def test_a_folder_of_heic_alone_says_what_to_install(tmp_path, monkeypatch, opened):
    without_heif(monkeypatch)
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "0.heic").touch()
    with pytest.raises(
        InputError, match=r"only 1 .heic \(install orbithash\[heif\] to read them\)"
    ):
        opened(tmp_path)


def test_heic_files_are_images_where_they_can_be_read(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("orbithash.data.folder.find_spec", lambda name: name)
    class_folder(tmp_path, {"cat": 2})
    (tmp_path / "cat" / "IMG_0.HEIC").touch()
    assert class_folders(tmp_path).paths == ("cat/0.jpg", "cat/1.jpg", "cat/IMG_0.HEIC")
    assert not caplog.records


def without_heif(monkeypatch):
    monkeypatch.setattr("orbithash.data.folder.find_spec", lambda name: None)


def test_training_and_indexing_follow_the_same_links(tmp_path, caplog):
    class_folder(tmp_path / "elsewhere", {"dog": 2})
    class_folder(tmp_path / "pets", {"cat": 3})
    (tmp_path / "pets" / "dog").symlink_to(tmp_path / "elsewhere" / "dog")
    assert all_images(tmp_path / "pets").paths == class_folders(tmp_path / "pets").paths
    assert len(all_images(tmp_path / "pets")) == 5
    assert not caplog.records
    (tmp_path / "pets" / "cat" / "loop").symlink_to(tmp_path / "pets")
    assert len(all_images(tmp_path / "pets")) == 5
    assert "skipped 1 file: 1 linked folder" in caplog.text


def test_images_are_named_by_path_folder_or_pattern(tmp_path, monkeypatch):
    class_folder(tmp_path, {"cat": 2, "dog/large": 2})
    save(noise((8, 8)), tmp_path / "cat" / "[1].jpg")
    monkeypatch.chdir(tmp_path)
    cats, dogs = ["cat/0.jpg", "cat/1.jpg"], ["dog/large/0.jpg", "dog/large/1.jpg"]
    assert images_named(["cat/1.jpg", "none.jpg"]) == ["cat/1.jpg", "none.jpg"]
    assert images_named(["dog/"]) == images_named(["dog/**/*.jpg"]) == dogs
    assert images_named(["cat/?.jpg"]) == cats
    assert images_named(["cat/[1].jpg"]) == ["cat/[1].jpg"]  # a file, not a pattern
    assert images_named(["*"]) == ["cat/0.jpg", "cat/1.jpg", "cat/[1].jpg", *dogs]
    assert images_named(["cat/*.heic", "a" * 300]) == ["cat/*.heic", "a" * 300]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="there are no images in empty; check the path"):
        images_named(["empty", "cat"])


def test_a_folder_without_class_folders_is_refused(tmp_path):
    save(noise((8, 8)), tmp_path / "loose.png")
    with pytest.raises(InputError, match="has 1 images but no folder with images"):
        class_folders(tmp_path)
    with pytest.raises(InputError, match="is not a folder"):
        class_folders(tmp_path / "loose.png")


def test_classes_of_one_or_two_images_have_no_query(tmp_path):
    with pytest.raises(InputError, match="no class of the 3 images has at least three"):
        class_folders(empty_files(tmp_path, {"cat": 2, "dog": 1}))


def test_images_to_encode_are_divided_as_those_to_train_on(tmp_path):
    folder = class_folder(tmp_path / "pets", {"cat": 12, "dog": 9})
    to_train, to_encode = class_folders(folder).split, all_images(folder).split
    assert to_encode.query.tolist() == to_train.query.tolist()
    assert to_encode.database.tolist() == to_train.database.tolist()
    save(noise((20, 20), seed=0), folder / "a loose one.jpg")
    divided = all_images(folder)
    loose = divided.paths.index("a loose one.jpg")
    assert loose not in {*divided.split.query, *divided.split.database}
    queries = {divided.paths[row] for row in divided.split.query}
    images = class_folders(folder)
    assert queries == {images.paths[row] for row in images.split.query}


def test_images_to_encode_need_no_queries(tmp_path):
    assert not all_images(class_folder(tmp_path / "pets", {"cat": 2, "dog": 1})).split.has_queries
    save(noise((20, 20), seed=0), tmp_path / "flat" / "a.jpg")
    assert not all_images(tmp_path / "flat").split.has_queries


def test_files_whose_names_are_not_utf_8_and_pipes_are_skipped_and_counted(tmp_path, caplog):
    class_folder(tmp_path, {"cat": 3, "dog": 3})
    unnamed = os.fsencode(tmp_path) + b"/cat/\xff.jpg"
    Path(os.fsdecode(unnamed)).write_bytes((tmp_path / "cat" / "0.jpg").read_bytes())
    os.mkfifo(tmp_path / "dog" / "pipe.jpg")  # opening it would wait forever
    for read in (class_folders, all_images):
        caplog.clear()
        assert len(read(tmp_path)) == 6
        assert "skipped 2 files" in caplog.text
        assert "1 whose name is not UTF-8 (rename it)" in caplog.text


def test_a_folder_whose_own_name_is_not_utf_8_is_refused(tmp_path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    class_folder(folder, {"cat": 3, "dog": 3})
    with pytest.raises(InputError, match="not valid text; save it as UTF-8"):
        class_folders(folder)
