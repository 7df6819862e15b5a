import numpy as np
import pytest

from orbithash.kernels.plain_search import as_words
from orbithash.kernels.scoring.histograms import (
    BLOCK_WORDS,
    MAX_QUERIES_PER_TASK,
    PART_CODES,
    distance_histograms,
    graded_histograms,
    graded_histograms_reference,
)


@pytest.mark.parametrize("n_bits", [4, 7, 8, 63, 64, 65, 127, 128, 255, 256, 300, 1024])
def test_histograms_match_numpy_for_any_number_of_bits(n_bits):
    assert_histograms_match(n_queries=MAX_QUERIES_PER_TASK + 1, n=1001, n_bits=n_bits, n_groups=5)


@pytest.mark.parametrize("n_bits", [16, 200])
@pytest.mark.parametrize(
    "n", [1, 2, 3, PART_CODES - 1, PART_CODES, PART_CODES + 1, BLOCK_WORDS, BLOCK_WORDS + 3]
)
def test_histograms_match_numpy_around_the_block_sizes(n, n_bits):
    assert_histograms_match(n_queries=2, n=n, n_bits=n_bits, n_groups=1 + n // 300)


@pytest.mark.parametrize("n_bits", [16, 200])
def test_histograms_match_numpy_if_each_item_is_a_group(n_bits):
    assert_histograms_match(n_queries=3, n=PART_CODES + 5, n_bits=n_bits, n_groups=PART_CODES + 5)


@pytest.mark.parametrize("n_bits", [64, 1024])
def test_the_largest_distance_is_counted(n_bits):
    ones = np.full((1, n_bits // 8), 255, dtype=np.uint8)
    histogram = distance_histograms(ones, np.tile(~ones, (5, 1)), n_bits)
    np.testing.assert_array_equal(histogram, [[0] * n_bits + [5]])


def test_queries_without_relevant_items_have_empty_grades():
    codes = random_codes(10, 16, seed=0)
    starts, grades = np.array([0, 10]), np.zeros((10, 1), dtype=np.int32)
    items, by_grade = graded_histograms(as_words(codes), as_words(codes), starts, grades, 16)
    np.testing.assert_array_equal(items.sum(axis=1), 10)
    np.testing.assert_array_equal(by_grade, np.zeros((10, 1, 17)))


def assert_histograms_match(n_queries, n, n_bits, n_groups):
    queries, database = random_codes(n_queries, n_bits, seed=0), random_codes(n, n_bits, seed=1)
    rng = np.random.default_rng(2)
    cuts = np.sort(rng.choice(np.arange(1, n), n_groups - 1, replace=False)) if n > 1 else []
    starts = np.concatenate([[0], cuts, [n]]).astype(np.int64)
    grades = rng.integers(0, 4, (n_queries, n_groups)).astype(np.int32)
    pair_grades = np.repeat(grades, np.diff(starts), axis=1)

    counted = graded_histograms(as_words(queries), as_words(database), starts, grades, n_bits)
    expected = graded_histograms_reference(queries, database, pair_grades, n_bits)
    np.testing.assert_array_equal(counted[0], expected[0])
    np.testing.assert_array_equal(counted[1], expected[1])
    np.testing.assert_array_equal(distance_histograms(queries, database, n_bits), expected[0])


def random_codes(n, n_bits, seed):
    return np.packbits(np.random.default_rng(seed).random((n, n_bits)) < 0.5, axis=1)
