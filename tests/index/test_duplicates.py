import tracemalloc

import numpy as np
import pytest

from orbithash.errors import InputError
from orbithash.index import ExactIndex
from orbithash.index.duplicates import duplicate_groups


@pytest.fixture
def index():
    """Items 3 and 9 differ in one bit, 4, 5 and 6 in one each, 7 in four from all others."""
    index = ExactIndex(8)
    codes = np.array([[0b0], [0b11110000], [0b11110001], [0b11110011], [0b1111], [0b1]], np.uint8)
    index.add([9, 4, 5, 6, 7, 3], codes)
    return index


def test_groups_are_ordered_by_size_and_have_distances_from_their_first_item(index):
    groups = index.duplicates(1)
    assert [group.ids.tolist() for group in groups] == [[4, 5, 6], [3, 9]]
    assert [group.distances.tolist() for group in groups] == [[0, 1, 2], [0, 1]]
    assert [(len(group), group.spread) for group in groups] == [(3, 2), (2, 1)]


def test_groups_are_a_sequence(index):
    groups = index.duplicates(1)
    assert len(groups) == 2
    assert groups[-1].ids.tolist() == [3, 9]
    assert [group.ids.tolist() for group in groups[:1]] == [[4, 5, 6]]
    assert groups[5:] == []
    with pytest.raises(IndexError):
        groups[2]


def test_groups_of_both_are_those_with_an_item_of_each(index):
    groups = index.duplicates(1)
    assert [group.ids.tolist() for group in groups.across([9, 4], [3])] == [[3, 9]]
    assert [group.ids.tolist() for group in groups.across([4], [5, 9])] == [[4, 5, 6]]
    assert len(groups.across([4], [9])) == 0
    assert len(groups.across([4], [9]).across([4], [9])) == 0


def test_without_items_or_duplicates_there_are_no_groups():
    index = ExactIndex(8)
    assert len(index.duplicates(8)) == 0
    index.add(codes=np.array([[0], [255]], np.uint8))
    assert list(index.duplicates(7)) == []


@pytest.mark.parametrize("radius", [-1, 9])
def test_a_radius_that_codes_cannot_have_is_rejected(index, radius):
    with pytest.raises(InputError, match="the codes have 8 bits; give a whole number from 0 to 8"):
        index.duplicates(radius)


@pytest.mark.parametrize("kind", ["random", "clusters", "copies", "equal"])
def test_memory_is_at_most_64_bytes_a_code(kind):
    n, rng = 200_000, np.random.default_rng(0)
    n_centres = {"random": n, "clusters": 200, "copies": n // 20, "equal": 1}[kind]
    words = rng.integers(0, 1 << 63, n_centres, dtype=np.uint64)[rng.integers(0, n_centres, n)]
    flips = 0 if kind in ("random", "equal") else 2
    for _ in range(flips):
        words ^= np.uint64(1) << rng.integers(0, 64, n, dtype=np.uint64)
    index = ExactIndex(64)
    index.add(codes=words.view(np.uint8).reshape(n, 8))
    duplicate_groups(index.table, 3)  # compiles
    tracemalloc.start()
    try:
        duplicate_groups(index.table, 3)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (peak + index.table.ids.nbytes + index.table.words.nbytes) / n < 64
