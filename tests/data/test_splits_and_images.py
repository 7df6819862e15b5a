from pathlib import Path

import numpy as np
import pytest

from orbithash.data import ImageFiles, Split
from orbithash.errors import InputError


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def images(n: int, labels, classes, split) -> ImageFiles:
    return ImageFiles(Path(), tuple(f"{row}.jpg" for row in range(n)), labels, classes, split)


def test_training_images_may_be_in_the_database():
    split = Split(train=rows(0, 1), query=rows(4), database=rows(0, 1, 2))
    assert len(split.validation) == 0


@pytest.mark.parametrize("part", ["train", "query"])
def test_validation_images_may_neither_train_nor_ask(part):
    parts = {"train": rows(0), "query": rows(1), "database": rows(0, 2), "validation": rows(2)}
    parts[part] = rows(2)
    with pytest.raises(InputError, match=f"1 validation images are {part} images too"):
        Split(**parts)


def test_a_split_for_training_alone_has_neither_queries_nor_a_database():
    split = Split(train=rows(0, 1))
    assert not split.is_scored
    assert len(split.query) == len(split.database) == len(split.validation) == 0
    assert Split(train=rows(0), query=rows(1), database=rows(0)).is_scored


def test_queries_without_a_database_are_refused():
    with pytest.raises(InputError, match="no database images"):
        Split(train=rows(0), query=rows(1))
    with pytest.raises(InputError, match="no train images"):
        Split(train=rows())


def test_a_part_without_images_is_refused():
    with pytest.raises(InputError, match="no query images"):
        Split(train=rows(0), query=rows(), database=rows(0))


def test_a_row_named_twice_is_refused():
    with pytest.raises(InputError, match="some database images twice"):
        Split(train=rows(0), query=rows(1), database=rows(2, 2))


def test_a_split_must_number_images_that_exist():
    split = Split(train=rows(0), query=rows(1), database=rows(7))
    with pytest.raises(InputError, match="database rows go from 7 to 7, but there are 3 images"):
        images(3, np.array([0, 1, 0]), ("a", "b"), split)


def test_labels_must_be_as_many_as_images_and_have_names():
    split = Split(train=rows(0), query=rows(1), database=rows(2))
    with pytest.raises(InputError, match="got 2 labels for 3 images"):
        images(3, np.array([0, 1]), ("a", "b"), split)
    with pytest.raises(InputError, match="need 3 classes from 0 on, but 2 are named"):
        images(3, np.array([0, 1, 2]), ("a", "b"), split)


def test_an_image_may_show_several_classes():
    split = Split(train=rows(0), query=rows(1), database=rows(2))
    labels = np.array([[1, 1], [0, 1], [1, 0]], dtype=bool)
    assert len(images(3, labels, ("a", "b"), split)) == 3
