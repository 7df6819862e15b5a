import numpy as np
import pytest

from orbithash.kernels.plain_search import as_words, nearest_reference, within_reference
from orbithash.kernels.search import multi_index
from orbithash.kernels.search.multi_index import (
    nearest_by_tables,
    substring_tables,
    within_by_tables,
)


@pytest.fixture(params=["unlimited budget", "usual budget"])
def budget(request, monkeypatch):
    """With an unlimited budget, no query is left to the scan."""
    if request.param == "unlimited budget":
        monkeypatch.setattr(multi_index, "probe_budget", lambda words, n_queries: 1 << 60)
        monkeypatch.setattr(multi_index, "nearest_words", refuse_to_scan)
        monkeypatch.setattr(multi_index, "within_words", refuse_to_scan)


@pytest.mark.usefixtures("budget")
@pytest.mark.parametrize("n_bits", [4, 7, 13, 64, 65, 100, 300])
@pytest.mark.parametrize("k", [1, 10, 2000])
def test_the_nearest_by_tables_match_a_stable_sort(n_bits, k):
    queries, database = near_codes(9, n_bits, seed=0), near_codes(700, n_bits, seed=1)
    found = nearest_by_tables(as_words(queries), tables_of(database, n_bits), k)
    expected = nearest_reference(queries, database, k)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])


@pytest.mark.usefixtures("budget")
@pytest.mark.parametrize("n_bits", [4, 13, 64, 100, 300])
@pytest.mark.parametrize("radius_fraction", [0, 0.05, 0.2, 2])
def test_the_ball_by_tables_matches_a_stable_sort(n_bits, radius_fraction):
    queries, database = near_codes(9, n_bits, seed=0), near_codes(700, n_bits, seed=1)
    radius = int(radius_fraction * n_bits)
    found = within_by_tables(as_words(queries), tables_of(database, n_bits), radius)
    for result, expected in zip(found, within_reference(queries, database, radius), strict=True):
        np.testing.assert_array_equal(result[0], expected[0])
        np.testing.assert_array_equal(result[1], expected[1])


def test_near_duplicates_are_found_without_a_scan(monkeypatch):
    monkeypatch.setattr(multi_index, "nearest_words", refuse_to_scan)
    rng = np.random.default_rng(0)
    database = rng.integers(0, 256, (200_000, 8), dtype=np.uint8)
    queries = database[:100] ^ np.array([1, 0, 0, 0, 0, 0, 0, 128], dtype=np.uint8)
    distances, positions = nearest_by_tables(as_words(queries), tables_of(database, 64), k=1)
    np.testing.assert_array_equal(distances, np.full((100, 1), 2))
    np.testing.assert_array_equal(positions[:, 0], range(100))


def test_codes_that_are_all_equal_are_scanned():
    database = np.zeros((5000, 8), dtype=np.uint8)
    distances, positions = nearest_by_tables(as_words(database[:3]), tables_of(database, 64), k=4)
    np.testing.assert_array_equal(distances, np.zeros((3, 4)))
    np.testing.assert_array_equal(positions, [range(4)] * 3)


@pytest.mark.parametrize(("n_queries", "n"), [(0, 5), (3, 0), (0, 0)])
def test_no_queries_or_no_codes_give_empty_results(n_queries, n):
    queries, database = near_codes(n_queries, 16, seed=0), near_codes(n, 16, seed=1)
    distances, positions = nearest_by_tables(as_words(queries), tables_of(database, 16), k=3)
    assert distances.shape == positions.shape == (n_queries, min(3, n))
    assert [
        len(ball[0]) for ball in within_by_tables(as_words(queries), tables_of(database, 16), 2)
    ] == ([0] * n_queries)


def tables_of(database, n_bits):
    return substring_tables(as_words(database), n_bits)


def near_codes(n, n_bits, seed):
    """Return codes in a few clusters, with near ones, far ones and ties."""
    centres = np.random.default_rng(7).random((12, n_bits)) < 0.5
    rng = np.random.default_rng(seed)
    flipped = rng.random((n, n_bits)) < 0.05
    return np.packbits(centres[rng.integers(0, 12, n)] ^ flipped, axis=1)


def refuse_to_scan(queries, database, limit):
    assert queries.shape[1] == 0
    empty = np.empty((0, min(limit, database.shape[1])), dtype=np.int64)
    return empty, empty
