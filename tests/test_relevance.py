import numpy as np
import pytest

from orbithash.errors import InputError
from orbithash.relevance import (
    check_labels,
    check_same_kind,
    group_by_labels,
    labels_in_common,
    related,
)


def test_images_with_several_labels_are_related_by_one_in_common():
    left, right = random_labels(7, seed=0), random_labels(9, seed=1)
    common, is_related = labels_in_common(left, right), related(left, right)
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            shared = set(np.flatnonzero(a)) & set(np.flatnonzero(b))
            assert common[i, j] == len(shared)
            assert is_related[i, j] == bool(shared)


@pytest.mark.parametrize("several", [False, True])
def test_groups_hold_images_with_the_same_labels_in_their_order(several):
    labels = random_labels(60, seed=2)
    labels = labels if several else labels.sum(axis=1)
    groups = group_by_labels(labels)
    np.testing.assert_array_equal(groups.labels[groups.group], labels)
    for g in range(len(groups.labels)):
        members = groups.order[groups.starts[g] : groups.starts[g + 1]]
        np.testing.assert_array_equal(members, np.flatnonzero(groups.group == g))


def test_class_numbers_may_be_negative_and_far_apart():
    labels = np.array([2**62, -5, 2**62, 0, -(2**62), -5])
    groups = group_by_labels(labels)
    np.testing.assert_array_equal(groups.labels, [-(2**62), -5, 0, 2**62])
    np.testing.assert_array_equal(groups.order, [4, 1, 5, 3, 0, 2])


@pytest.mark.parametrize("kind", [bool, np.int8, np.uint8, np.float32])
def test_label_tables_may_have_any_type(kind):
    labels = random_labels(5, seed=3)
    np.testing.assert_array_equal(check_labels(labels.astype(kind), 5, "query"), labels)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros(4, dtype=int), "got 4 query labels for 3 query codes"),
        (np.zeros((4, 2), dtype=int), "got 4 query labels for 3 query codes"),
        (np.zeros(3), "number the classes with integers"),
        (np.array([[0], [3], [1]]), "not all 0 or 1"),
        (np.full((3, 2), np.nan), "not all 0 or 1"),
        (np.zeros((3, 2, 2), dtype=int), r"shape \(3, 2, 2\)"),
        (np.array(["cat", "dog", "cat"]), "pass integers"),
    ],
)
def test_invalid_labels_are_refused(labels, message):
    with pytest.raises(InputError, match=message):
        check_labels(labels, 3, "query")


@pytest.mark.parametrize("database_shape", [(5,), (5, 4)])
def test_labels_of_different_kinds_are_not_compared(database_shape):
    with pytest.raises(InputError, match=r"shape \(3, 2\) and database labels of shape"):
        check_same_kind(np.zeros((3, 2), dtype=int), np.zeros(database_shape, dtype=int))


def random_labels(n, seed, classes=5):
    return np.random.default_rng(seed).integers(0, 2, (n, classes))
