import numpy as np
import pytest

from orbithash.kernels.plain_search import as_words
from orbithash.kernels.scoring.average_precision import (
    BLOCK_CODES,
    MAX_QUERIES_PER_TASK,
    sorted_precision_sums,
    stable_precision_sums,
)
from orbithash.kernels.scoring.histograms import graded_histograms_reference

NONE = np.full(MAX_QUERIES_PER_TASK + 1, -1)  # items that are left out


@pytest.mark.parametrize("n_bits", [4, 64, 65, 300])
@pytest.mark.parametrize("n", [1, 500, BLOCK_CODES + 1])
def test_counting_in_database_order_matches_a_stable_sort(n, n_bits):
    rng = np.random.default_rng(0)
    queries = np.packbits(rng.random((MAX_QUERIES_PER_TASK + 1, n_bits)) < 0.5, axis=1)
    database = np.packbits(rng.random((n, n_bits)) < 0.5, axis=1)
    group, is_relevant = rng.integers(0, 6, n), rng.random((MAX_QUERIES_PER_TASK + 1, 6)) < 0.4
    cutoffs = np.tile([1, 7, 100, n], (len(queries), 1)) + np.arange(len(queries))[:, None]

    related = is_relevant[:, group]
    items, relevant = graded_histograms_reference(
        queries, database, related.astype(np.int32), n_bits
    )
    sums, found = stable_precision_sums(
        as_words(queries),
        as_words(database),
        group,
        is_relevant,
        items.cumsum(axis=1) - items,
        relevant[:, 0].cumsum(axis=1) - relevant[:, 0],
        cutoffs,
        NONE,
    )
    words = as_words(queries), as_words(database)
    expected = sorted_precision_sums(*words, group, is_relevant, cutoffs, NONE, kind="stable")
    np.testing.assert_allclose(sums, expected[0], rtol=1e-12)
    np.testing.assert_array_equal(found, expected[1])
