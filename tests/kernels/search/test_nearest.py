import numpy as np
import pytest

from orbithash.kernels.plain_search import (
    as_words,
    hamming_distances_reference,
    nearest_reference,
    within_reference,
)
from orbithash.kernels.search.nearest import MAX_QUERIES_PER_TASK, nearest_codes, within_words
from orbithash.kernels.search.wide_compare import L1_WORDS, LANES


@pytest.mark.parametrize("n_bits", [4, 7, 8, 63, 64, 65, 128, 300, 1024])
def test_the_nearest_match_a_stable_sort_for_any_number_of_bits(n_bits):
    queries, database = (
        random_codes(MAX_QUERIES_PER_TASK + 1, n_bits, seed=0),
        random_codes(999, n_bits, seed=1),
    )
    assert_nearest_match(queries, database, k=10)


@pytest.mark.parametrize("n_bits", [64, 65, 128, 256, 300, 1024])
@pytest.mark.parametrize("n_queries", [1, 3])
def test_clustered_codes_match_a_stable_sort_with_one_query_or_several(n_bits, n_queries):
    # Most codes are far away in the first word already, some of them only in the last.
    rng = np.random.default_rng(0)
    centres = random_codes(5, n_bits, seed=2)
    centres[1] = centres[0]
    centres[1, -1] ^= 128  # the first bit of the last byte
    database = np.repeat(centres, 200, axis=0)[rng.permutation(1000)]
    flipped = random_codes(1000, n_bits, seed=3) & random_codes(1000, n_bits, seed=4)
    database ^= flipped & random_codes(1000, n_bits, seed=5)
    assert_nearest_match(centres[:n_queries], database, k=10)
    assert_nearest_match(centres[:n_queries], database, k=300)


@pytest.mark.parametrize("k", [1, 2, 100, 3000])
@pytest.mark.parametrize("n", [1, LANES, LANES + 1, L1_WORDS - 1, L1_WORDS + 1])
def test_the_nearest_match_a_stable_sort_for_any_size(n, k):
    assert_nearest_match(random_codes(3, 16, seed=0), random_codes(n, 16, seed=1), k)


@pytest.mark.parametrize("k", [1, 50])
def test_the_nearest_are_found_if_each_item_is_nearer_than_the_last(k):
    query, database = random_codes(1, 64, seed=0), random_codes(5000, 64, seed=1)
    farthest_first = np.argsort(-hamming_distances_reference(query, database)[0].astype(int))
    assert_nearest_match(query, database[farthest_first], k)


@pytest.mark.parametrize("n_queries", [1, 3])
@pytest.mark.parametrize("k", [1, 10, 1000])
def test_few_queries_search_parts_of_the_database_in_parallel(n_queries, k, monkeypatch):
    monkeypatch.setattr("orbithash.kernels.threads.MIN_PART_CODES", 500)
    monkeypatch.setattr("orbithash.kernels.threads.get_num_threads", lambda: 7)
    database = random_codes(4321, 16, seed=1)
    assert_nearest_match(random_codes(n_queries, 16, seed=0), database, k)


def test_equal_codes_are_in_database_order():
    codes = np.zeros((1000, 8), dtype=np.uint8)
    distances, positions = nearest_codes(codes[:2], codes, k=7)
    np.testing.assert_array_equal(distances, np.zeros((2, 7)))
    np.testing.assert_array_equal(positions, [range(7)] * 2)


@pytest.mark.parametrize(("n_queries", "n", "k"), [(0, 5, 3), (2, 0, 3), (2, 5, 0)])
def test_no_queries_no_codes_or_no_neighbours_give_empty_results(n_queries, n, k):
    queries, database = random_codes(n_queries, 16, seed=0), random_codes(n, 16, seed=1)
    distances, positions = nearest_codes(queries, database, k)
    assert distances.shape == positions.shape == (n_queries, min(k, n))


@pytest.mark.parametrize("n_bits", [4, 13, 64, 65, 300, 1024])
@pytest.mark.parametrize("radius_fraction", [0, 0.4, 0.5, 2])
def test_codes_within_a_radius_match_a_stable_sort(n_bits, radius_fraction):
    queries, database = random_codes(5, n_bits, seed=0), random_codes(700, n_bits, seed=1)
    assert_within_match(queries, database, radius=int(radius_fraction * n_bits))


@pytest.mark.parametrize("n", [0, 1, LANES, L1_WORDS + 1])
def test_any_number_of_codes_can_be_searched_by_radius(n):
    assert_within_match(random_codes(3, 16, seed=0), random_codes(n, 16, seed=1), radius=6)


def test_no_queries_give_no_results_within_a_radius():
    assert within_words(as_words(random_codes(0, 16, 0)), as_words(random_codes(5, 16, 1)), 3) == []


@pytest.mark.parametrize("n_queries", [1, 3])
def test_few_queries_search_parts_of_the_database_by_radius_in_parallel(n_queries, monkeypatch):
    monkeypatch.setattr("orbithash.kernels.threads.MIN_PART_CODES", 500)
    monkeypatch.setattr("orbithash.kernels.threads.get_num_threads", lambda: 7)
    database = random_codes(4321, 16, seed=1)
    assert_within_match(random_codes(n_queries, 16, seed=0), database, radius=6)


def assert_nearest_match(queries, database, k):
    found, expected = nearest_codes(queries, database, k), nearest_reference(queries, database, k)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])


def assert_within_match(queries, database, radius):
    found = within_words(as_words(queries), as_words(database), radius)
    expected = within_reference(queries, database, radius)
    assert len(found) == len(expected)
    for (distances, positions), (expected_distances, expected_positions) in zip(
        found, expected, strict=True
    ):
        np.testing.assert_array_equal(distances, expected_distances)
        np.testing.assert_array_equal(positions, expected_positions)


def random_codes(n, n_bits, seed):
    return np.packbits(np.random.default_rng(seed).random((n, n_bits)) < 0.5, axis=1)
