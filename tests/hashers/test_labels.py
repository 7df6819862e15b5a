import numpy as np
import pytest

from orbithash.hashers.labels import dissimilar_pairs, memberships, similar_pairs


@pytest.mark.parametrize("several", [False, True])
def test_drawn_pairs_are_what_they_are_called(several):
    rng = np.random.RandomState(0)
    members = (
        rng.random_sample((60, 5)) < 0.3 if several else np.eye(5, dtype=bool)[np.arange(60) % 5]
    )
    one, other = similar_pairs(members, 1000, rng).T
    assert (one != other).all()
    assert (members[one] & members[other]).any(axis=1).all()
    one, other = dissimilar_pairs(members, 1000, rng).T
    assert (one != other).all()
    assert not (members[one] & members[other]).any()


def test_every_pair_of_a_class_is_drawn_and_a_class_of_one_image_never():
    members = np.eye(3, dtype=bool)[[0, 0, 0, 1, 2, 2]]
    pairs = {tuple(pair) for pair in similar_pairs(members, 500, np.random.RandomState(0))}
    assert pairs == {(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1), (4, 5), (5, 4)}


def test_table_of_memberships_has_a_column_per_class():
    np.testing.assert_array_equal(
        memberships(np.zeros((3, 1)), np.array([9, -1, 9])),
        [[False, True], [True, False], [False, True]],
    )
