import numpy as np
import pytest

from orbithash.data import Split, check_trainable, hold_out, training_rows
from orbithash.errors import InputError


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


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
    assert not split.has_queries
    assert len(split.query) == len(split.database) == len(split.validation) == 0
    assert Split(train=rows(0), query=rows(1), database=rows(0)).has_queries


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


def test_every_class_gives_its_share_and_keeps_two():
    labels = np.repeat([0, 1, 2, 3], [20, 10, 3, 2])
    train, held_out = hold_out(labels, 0.2, seed=0)
    assert np.bincount(labels[held_out], minlength=4).tolist() == [4, 2, 1, 0]
    assert sorted([*train, *held_out]) == list(range(35))


def test_the_seed_determines_the_held_out_images():
    labels = np.repeat([0, 1], 20)
    first, again, other = (hold_out(labels, 0.2, seed=seed)[1].tolist() for seed in (0, 0, 1))
    assert first == again != other


def test_multi_label_images_are_held_out_without_stratification():
    train, held_out = hold_out(np.ones((50, 3), dtype=bool), 0.1, seed=0)
    assert (len(train), len(held_out)) == (45, 5)


def test_a_share_of_0_holds_out_nothing():
    assert len(hold_out(np.repeat([0, 1], 20), 0.0, seed=0)[1]) == 0


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros(4, dtype=int), "at least two classes"),
        (np.array([0, 0, 1]), "1 of 2 classes have one training image, the first is class 1"),
        (np.eye(3, dtype=bool), "no two training images share a label"),
        (np.ones((3, 2), dtype=bool), "all training images share a label"),
    ],
)
def test_labels_without_triplets_are_refused(labels, message):
    with pytest.raises(InputError, match=message):
        check_trainable(labels)


def test_labels_with_triplets_pass():
    check_trainable(np.array([0, 0, 1, 1]))
    check_trainable(np.array([[1, 0], [1, 1], [0, 0]], dtype=bool))


def test_rows_held_out_are_those_of_the_split_or_else_a_share_of_its_training_rows():
    labels, rows = np.repeat([0, 1], 20), np.arange(40)
    named = Split(train=rows[::2], validation=rows[1::4])
    for found, wanted in zip(
        training_rows(labels, named, 0.5, seed=0), (named.train, named.validation), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)
    train, held_out = training_rows(labels, Split(train=rows[::2]), 0.2, seed=0)
    assert len(held_out) == 4
    np.testing.assert_array_equal(np.union1d(train, held_out), rows[::2])
