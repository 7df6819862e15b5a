import numpy as np
import pytest

from orbithash.kernels.plain_search import as_words, within_reference
from orbithash.kernels.wide_compare import L1_WORDS, LANES
from orbithash.kernels.within import within_words


@pytest.mark.parametrize("n_bits", [4, 13, 64, 65, 300, 1024])
@pytest.mark.parametrize("radius_fraction", [0, 0.4, 0.5, 2])
def test_codes_within_a_radius_match_a_stable_sort(n_bits, radius_fraction):
    queries, database = random_codes(5, n_bits, seed=0), random_codes(700, n_bits, seed=1)
    assert_match(queries, database, radius=int(radius_fraction * n_bits))


@pytest.mark.parametrize("n", [0, 1, LANES, L1_WORDS + 1])
def test_any_number_of_codes_can_be_searched(n):
    assert_match(random_codes(3, 16, seed=0), random_codes(n, 16, seed=1), radius=6)


def test_no_queries_give_no_results():
    assert within_words(as_words(random_codes(0, 16, 0)), as_words(random_codes(5, 16, 1)), 3) == []


@pytest.mark.parametrize("n_queries", [1, 3])
def test_few_queries_search_parts_of_the_database_in_parallel(n_queries, monkeypatch):
    monkeypatch.setattr("orbithash.kernels.threads.MIN_PART_CODES", 500)
    monkeypatch.setattr("orbithash.kernels.threads.get_num_threads", lambda: 7)
    database = random_codes(4321, 16, seed=1)
    assert_match(random_codes(n_queries, 16, seed=0), database, radius=6)


def assert_match(queries, database, radius):
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
