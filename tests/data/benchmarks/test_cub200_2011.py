import numpy as np
import pytest

from image_files import cub_folder
from orbithash.data.benchmarks.cub200_2011 import read_cub200_2011
from orbithash.data.sources import open_source
from orbithash.errors import InputError


def test_training_images_are_the_database_and_test_images_the_queries(tmp_path):
    birds = open_source(f"cub200_2011:{cub_folder(tmp_path)}")
    assert birds.classes == ("001.Bird_1", "002.Bird_2", "003.Bird_3")
    assert birds.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert birds.paths[5] == "images/002.Bird_2/Bird_2_0001.jpg"
    assert birds.split.train.tolist() == birds.split.database.tolist() == [1, 3, 5, 7, 9, 11]
    assert birds.split.query.tolist() == [0, 2, 4, 6, 8, 10]
    assert all(birds.file(row).is_file() for row in range(len(birds)))


@pytest.mark.parametrize("name", ["images", "image_class_labels", "train_test_split"])
def test_a_missing_table_is_named(name, tmp_path):
    (cub_folder(tmp_path) / f"{name}.txt").unlink()
    with pytest.raises(InputError, match=rf"{name}\.txt is missing"):
        read_cub200_2011(tmp_path)


def test_a_missing_image_is_named(tmp_path):
    (cub_folder(tmp_path) / "images/002.Bird_2/Bird_2_0001.jpg").unlink()
    with pytest.raises(InputError, match=r"1 of 12 images .*Bird_2_0001.jpg;"):
        read_cub200_2011(tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("12 2", r"line 13 of .*labels.txt is '12 2'"),
        ("13", r"line 13 of .*labels.txt is '13'"),
        ("13 2", "differ in 1 images, for example id 13"),
    ],
)
def test_a_damaged_table_is_refused(line, message, tmp_path):
    table = cub_folder(tmp_path) / "image_class_labels.txt"
    table.write_text(table.read_text() + line + "\n")
    with pytest.raises(InputError, match=message):
        read_cub200_2011(tmp_path)


def test_a_label_that_is_not_a_number_is_refused(tmp_path):
    table = cub_folder(tmp_path) / "image_class_labels.txt"
    table.write_text(table.read_text().replace("1 3", "1 three", 1))
    with pytest.raises(InputError, match="'three'"):
        read_cub200_2011(tmp_path)


def test_labels_are_numbered_from_0_without_gaps(tmp_path):
    table = cub_folder(tmp_path) / "image_class_labels.txt"
    table.write_text(table.read_text().replace(" 2\n", " 77\n"))
    assert np.unique(read_cub200_2011(tmp_path).labels).tolist() == [0, 1, 2]
