import numpy as np
import pytest
from scipy.io import loadmat, savemat

from image_files import dogs_folder, write_cells
from orbithash.data.benchmarks.stanford_dogs import read_stanford_dogs
from orbithash.data.sources import open_source
from orbithash.errors import InputError

CHIHUAHUA, SPANIEL = "n02085620-Chihuahua", "n02085782-Japanese_spaniel"


def test_training_images_are_the_database_and_test_images_the_queries(tmp_path):
    dogs = open_source(f"stanford_dogs:{dogs_folder(tmp_path)}")
    assert dogs.classes == (CHIHUAHUA, SPANIEL)
    assert dogs.paths[0] == f"Images/{SPANIEL}/n02085782_2.jpg"
    assert dogs.labels.tolist() == [1, 1, 0, 0, 0, 1]
    assert dogs.split.train.tolist() == dogs.split.database.tolist() == [0, 1, 2, 3]
    assert [dogs.paths[row] for row in dogs.split.query] == [
        f"Images/{CHIHUAHUA}/n02085620_1.jpg",
        f"Images/{SPANIEL}/n02085782_1.jpg",
    ]
    assert all(dogs.file(row).is_file() for row in range(len(dogs)))


def test_labels_are_those_of_the_lists_counted_from_0(tmp_path):
    dogs = read_stanford_dogs(dogs_folder(tmp_path))
    listed = [loadmat(tmp_path / f"{name}_list.mat")["labels"] for name in ("train", "test")]
    np.testing.assert_array_equal(dogs.labels + 1, np.concatenate(listed).ravel())


def test_lists_may_be_in_a_subfolder(tmp_path):
    expected = read_stanford_dogs(dogs_folder(tmp_path)).paths
    (tmp_path / "lists").mkdir()
    for file in list(tmp_path.glob("*.mat")):
        file.rename(tmp_path / "lists" / file.name)
    assert read_stanford_dogs(tmp_path).paths == expected


def test_lists_written_on_windows_and_by_other_tools_are_read(tmp_path):
    dogs_folder(tmp_path)
    # One row instead of one column, backslashes, and strings of equal length without cells.
    write_cells(
        tmp_path / "train_list.mat",
        {"file_list": [f"{CHIHUAHUA}\\n02085620_0.jpg", f"{SPANIEL}\\n02085782_0.jpg"]},
    )
    savemat(tmp_path / "test_list.mat", {"file_list": [f"{CHIHUAHUA}/n02085620_1.jpg"]})
    dogs = read_stanford_dogs(tmp_path)
    assert dogs.labels.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("train_list.mat", r"train_list.mat is missing; unpack images.tar and lists.tar"),
        ("test_list.mat", r"test_list.mat is missing"),
        (f"Images/{CHIHUAHUA}/n02085620_2.jpg", r"1 of 6 images .*n02085620_2.jpg;"),
    ],
)
def test_missing_files_are_named(missing, message, tmp_path):
    (dogs_folder(tmp_path) / missing).unlink()
    with pytest.raises(InputError, match=message):
        read_stanford_dogs(tmp_path)


def test_a_damaged_list_is_refused(tmp_path):
    (dogs_folder(tmp_path) / "train_list.mat").write_bytes(b"not MATLAB's")
    with pytest.raises(InputError, match=r"cannot read .*train_list.mat"):
        read_stanford_dogs(tmp_path)
    savemat(tmp_path / "train_list.mat", {"something": 1})
    with pytest.raises(InputError, match="has no variable file_list"):
        read_stanford_dogs(tmp_path)
    write_cells(tmp_path / "train_list.mat", {"file_list": ["a.jpg"]})
    with pytest.raises(InputError, match=r"lists 'a.jpg'"):
        read_stanford_dogs(tmp_path)


def test_an_image_in_both_lists_is_refused(tmp_path):
    train = dogs_folder(tmp_path) / "train_list.mat"
    (tmp_path / "test_list.mat").write_bytes(train.read_bytes())
    with pytest.raises(InputError, match=r"4 images .* listed more than once"):
        read_stanford_dogs(tmp_path)
