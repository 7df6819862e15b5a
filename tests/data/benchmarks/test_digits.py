import numpy as np
import pytest

from orbithash.data.benchmarks import DATASETS
from orbithash.data.benchmarks.digits import read_digits
from orbithash.data.splits import stratified_parts
from orbithash.errors import InputError


def test_digits_are_1797_images_of_8_by_8_pixels_between_0_and_1():
    dataset = DATASETS["digits"]()
    assert dataset.features.shape == (1797, 64)
    assert (dataset.features.min(), dataset.features.max()) == (0.0, 1.0)
    assert dataset.classes == tuple("0123456789")


def test_queries_are_not_in_the_database_and_validation_images_not_in_training():
    split = read_digits(seed=3).split
    assert np.intersect1d(split.query, split.database).size == 0
    assert np.intersect1d(split.validation, split.train).size == 0
    assert np.isin(split.train, split.database).all()
    assert len(split.query) + len(split.database) == 1797


def test_every_digit_has_40_queries_training_and_validation_images():
    dataset = read_digits()
    for part in (dataset.split.query, dataset.split.train, dataset.split.validation):
        assert np.bincount(dataset.labels[part]).tolist() == [40] * 10


def test_the_split_depends_only_on_the_seed():
    first, again, other = (
        read_digits(seed=1).split,
        read_digits(seed=1).split,
        read_digits(seed=2).split,
    )
    assert np.array_equal(first.query, again.query)
    assert np.array_equal(first.train, again.train)
    assert not np.array_equal(first.query, other.query)


def test_a_class_too_small_for_the_parts_is_named():
    with pytest.raises(InputError, match="class 1 has 2 images but the parts need 3"):
        stratified_parts(np.array([0, 0, 0, 1, 1]), [1, 2], seed=0)
