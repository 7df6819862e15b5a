import numpy as np
import pytest

from orbithash.kernels.histograms import graded_histograms_reference
from orbithash.kernels.plain_search import as_words
from orbithash.kernels.stable_order import (
    BLOCK_CODES,
    MAX_QUERIES_PER_TASK,
    stable_precision_sums,
    stable_precision_sums_reference,
)


@pytest.mark.parametrize("n_bits", [4, 64, 65, 300])
@pytest.mark.parametrize("n", [1, 500, BLOCK_CODES + 1])
def test_counting_in_database_order_matches_a_stable_sort(n, n_bits):
    rng = np.random.default_rng(0)
    queries = np.packbits(rng.random((MAX_QUERIES_PER_TASK + 1, n_bits)) < 0.5, axis=1)
    database = np.packbits(rng.random((n, n_bits)) < 0.5, axis=1)
    group, is_relevant = rng.integers(0, 6, n), rng.random((MAX_QUERIES_PER_TASK + 1, 6)) < 0.4
    cutoffs = np.array([1, 7, 100, n])

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
    )
    expected = stable_precision_sums_reference(queries, database, related, cutoffs)
    np.testing.assert_allclose(sums, expected[0], rtol=1e-12)
    np.testing.assert_array_equal(found, expected[1])
