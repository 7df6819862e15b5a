import logging

import numpy as np
import pytest

from image_files import class_folder, noise, save
from orbithash.data import class_folders
from orbithash.data.sources import open_source
from orbithash.errors import InputError


def test_folders_are_classes_in_alphabetical_order(tmp_path):
    pets = open_source(str(class_folder(tmp_path, {"dog": 3, "cat": 2})))
    assert pets.classes == ("cat", "dog")
    assert pets.paths == ("cat/0.jpg", "cat/1.jpg", "dog/0.jpg", "dog/1.jpg", "dog/2.jpg")
    assert pets.labels.tolist() == [0, 0, 1, 1, 1]


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
    assert "1 images outside of any class folder" in caplog.text
    assert "1 folders without images, for example empty" in caplog.text


def test_a_folder_without_class_folders_is_refused(tmp_path):
    save(noise((8, 8)), tmp_path / "loose.png")
    with pytest.raises(InputError, match="has 1 images but no folder with images"):
        class_folders(tmp_path)
    with pytest.raises(InputError, match="is not a folder"):
        class_folders(tmp_path / "loose.png")


def test_classes_of_one_or_two_images_have_no_query(tmp_path):
    with pytest.raises(InputError, match="no class of the 3 images has at least three"):
        class_folders(empty_files(tmp_path, {"cat": 2, "dog": 1}))
