import numpy as np
import pytest

from orbithash.hashers.base import dissimilar_pairs, multi_hot, similar_pairs


@pytest.mark.parametrize("many_labels", [False, True])
def test_similar_pairs_share_a_label_and_dissimilar_pairs_none(many_labels):
    rng = np.random.RandomState(0)
    labels = (
        rng.random_sample((60, 5)) < 0.3
        if many_labels
        else np.eye(5, dtype=bool)[np.arange(60) % 5]
    )
    one, other = similar_pairs(labels, 1000, rng).T
    assert (one != other).all()
    assert (labels[one] & labels[other]).any(axis=1).all()
    one, other = dissimilar_pairs(labels, 1000, rng).T
    assert (one != other).all()
    assert not (labels[one] & labels[other]).any()


def test_every_pair_of_a_class_is_drawn_and_a_class_of_one_image_never():
    labels = np.eye(3, dtype=bool)[[0, 0, 0, 1, 2, 2]]
    pairs = {tuple(pair) for pair in similar_pairs(labels, 500, np.random.RandomState(0))}
    assert pairs == {(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1), (4, 5), (5, 4)}


def test_the_label_table_has_a_column_per_class():
    np.testing.assert_array_equal(
        multi_hot(np.zeros((3, 1)), np.array([9, -1, 9])),
        [[False, True], [True, False], [False, True]],
    )
