from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

from image_files import noise
from orbithash.data import ImageFiles, ImageSource, Split, open_source
from orbithash.errors import InputError


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def images(n: int, labels, classes, split) -> ImageFiles:
    return ImageFiles(Path(), tuple(f"{row}.jpg" for row in range(n)), labels, classes, split)


def test_a_split_must_number_images_that_exist():
    split = Split(train=rows(0), query=rows(1), database=rows(7))
    with pytest.raises(InputError, match="database rows go from 7 to 7, but there are 3 images"):
        images(3, np.array([0, 1, 0]), ("a", "b"), split)


def test_every_image_needs_a_label_and_every_label_a_name():
    split = Split(train=rows(0), query=rows(1), database=rows(2))
    with pytest.raises(InputError, match="got 2 labels for 3 images"):
        images(3, np.array([0, 1]), ("a", "b"), split)
    with pytest.raises(InputError, match="need 3 classes from 0 on, but 2 are named"):
        images(3, np.array([0, 1, 2]), ("a", "b"), split)


def test_an_image_may_have_several_labels():
    split = Split(train=rows(0), query=rows(1), database=rows(2))
    labels = np.array([[1, 1], [0, 1], [1, 0]], dtype=bool)
    assert len(images(3, labels, ("a", "b"), split)) == 3


class Pairs(Dataset):
    """A torch dataset of (image, label)."""

    def __init__(self, images, labels, **attributes):
        self.images, self.labels = images, labels
        vars(self).update(attributes)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, row):
        return self.images[row], self.labels[row]


def photos(n: int) -> list[Image.Image]:
    return [noise((10, 8), seed=seed) for seed in range(n)]


def test_a_dataset_is_a_source_of_images_that_all_train():
    data = open_source(Pairs(photos(3), [1, 0, 1]))
    assert isinstance(data, ImageSource)
    assert (len(data), str(data), data.classes) == (3, "Pairs", ("0", "1"))
    assert data.labels.tolist() == [1, 0, 1]
    assert data.split.train.tolist() == [0, 1, 2]
    assert not data.split.has_queries
    assert data.image(2).size == (10, 8)
    assert data.paths[2] == "item 2"


def test_labels_and_class_names_of_torchvisions_datasets_need_no_image():
    class Unread(Pairs):
        def __getitem__(self, row):
            raise AssertionError("an image was read")

    data = open_source(Unread(photos(2), [], targets=torch.tensor([1, 0]), classes=["cat", "dog"]))
    assert data.labels.tolist() == [1, 0]
    assert data.classes == ("cat", "dog")


def test_several_labels_are_a_row_for_each_image():
    data = open_source(Pairs(photos(2), [torch.tensor([1, 0, 1]), torch.tensor([0, 1, 0])]))
    assert data.labels.tolist() == [[True, False, True], [False, True, False]]
    assert data.classes == ("0", "1", "2")


@pytest.mark.parametrize("channels", [1, 3])
def test_a_tensor_becomes_pixels_with_the_channels_last(channels):
    pixels = torch.arange(channels * 20, dtype=torch.uint8).reshape(channels, 4, 5)
    whole, share = pixels[None], (pixels / 255)[None]
    for tensors in (whole, share):
        image = open_source(TensorDataset(tensors, torch.tensor([0]))).image(0)
        np.testing.assert_array_equal(image, pixels.permute(1, 2, 0))
        assert image.dtype == np.uint8
    grey = open_source(TensorDataset(pixels[:1], torch.tensor([0]))).image(0)
    np.testing.assert_array_equal(grey, pixels[0])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0.5, 1.5], r"the labels of Pairs are float64 of shape \(2,\)"),
        (["cat", "dog"], "each label a whole number or a row of 0 and 1"),
        ([[0, 1], [0]], "cannot read the labels of Pairs"),
        ([-1, 0], "need 1 classes from 0 on"),
        ([[0, 2], [1, 0]], "each label a whole number or a row of 0 and 1"),
        ([True, False], r"are bool of shape \(2,\)"),
    ],
)
def test_labels_that_are_no_numbers_are_refused(labels, message):
    with pytest.raises(InputError, match=message):
        open_source(Pairs(photos(2), labels))


def test_more_labels_than_class_names_are_refused():
    with pytest.raises(InputError, match="need 3 classes from 0 on, but 2 are named"):
        open_source(Pairs(photos(2), [0, 2], classes=["cat", "dog"]))


@pytest.mark.parametrize("source", [[], [1, 2, 3], [("a",), ("b",)], np.ones((3, 4))])
def test_what_is_no_dataset_is_refused(source):
    with pytest.raises(InputError):
        open_source(source)
