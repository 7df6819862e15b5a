import numpy as np
import pytest

from orbithash.data import LabelledImages, Split
from orbithash.errors import InputError


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def images(n: int) -> np.ndarray:
    return np.zeros((n, 1, 8, 8), dtype=np.float32)


def test_a_split_must_number_images_that_exist():
    split = Split(train=rows(0), query=rows(1), database=rows(7))
    with pytest.raises(InputError, match="database rows go from 7 to 7, but there are 3 images"):
        LabelledImages(images(3), np.array([0, 1, 0]), ("a", "b"), split)


def test_every_image_needs_a_label_and_every_label_a_name():
    split = Split(train=rows(0), query=rows(1), database=rows(2))
    with pytest.raises(InputError, match="got 2 labels for 3 images"):
        LabelledImages(images(3), np.array([0, 1]), ("a", "b"), split)
    with pytest.raises(InputError, match="need 3 classes from 0 on, but 2 are named"):
        LabelledImages(images(3), np.array([0, 1, 2]), ("a", "b"), split)


def test_an_image_may_have_several_labels():
    split = Split(train=rows(0), query=rows(1), database=rows(2))
    labels = np.array([[1, 1], [0, 1], [1, 0]], dtype=bool)
    assert len(LabelledImages(images(3), labels, ("a", "b"), split)) == 3
