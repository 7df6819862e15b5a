"""The compiled asymmetric search against a literal loop over codes and bits."""

import numpy as np
import pytest

from orbithash.codes import GRID, binarize, bit_weights, pack, unpack
from orbithash.kernels.plain_search import as_words
from orbithash.kernels.search.asymmetric import FEW, nearest_weighted
from orbithash.kernels.search.wide_compare import L1_WORDS, LANES, MAX_QUERIES_PER_TASK


def uniform(rng, shape):
    return rng.random(shape)


def saturated(rng, shape):
    """Like the output of a trained network: most values near 0 or 1."""
    return 1 / (1 + np.exp(-rng.normal(0, 4, shape)))


def eighths(rng, shape):
    return rng.integers(0, 9, shape) / 8


def zeros_and_ones(rng, shape):
    return rng.integers(0, 2, shape).astype(float)


def halves(rng, shape):
    """Every code is equally far."""
    return np.full(shape, 0.5)


def tiny(rng, shape):
    """Values so near 0.5 that weights are a few units of the grid, or none, and one of 1."""
    embeddings = 0.5 + rng.integers(-3, 4, shape) / GRID / 2
    embeddings[:, 0] = 1
    return embeddings


KINDS = [uniform, saturated, eighths, zeros_and_ones, halves, tiny]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_bits", [4, 7, 8, 16, 63, 64, 65, 128, 300, 1024])
def test_the_nearest_match_a_literal_loop_for_any_number_of_bits(kind, n_bits):
    assert_nearest_match(embeddings_of(kind, 3, n_bits), random_codes(150, n_bits), k=10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 2, FEW, FEW + 1, 299, 300, 500])
def test_the_nearest_match_a_literal_loop_for_any_k(kind, k):
    assert_nearest_match(embeddings_of(kind, 2, 20), random_codes(300, 20), k)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, LANES - 1, LANES, LANES + 1, L1_WORDS + 1])
def test_the_nearest_match_a_literal_loop_for_any_number_of_codes(kind, n):
    assert_nearest_match(embeddings_of(kind, 1, 12), random_codes(n, 12), k=5)


def test_queries_of_several_tasks_are_all_found():
    embeddings = embeddings_of(saturated, 2 * MAX_QUERIES_PER_TASK + 1, 16)
    assert_nearest_match(embeddings, random_codes(70, 16), k=3)


@pytest.mark.parametrize("n_queries", [1, 3])
@pytest.mark.parametrize("k", [1, 10, 1000])
def test_few_queries_search_parts_of_the_database_in_parallel(n_queries, k, monkeypatch):
    monkeypatch.setattr("orbithash.kernels.threads.MIN_PART_CODES", 500)
    monkeypatch.setattr("orbithash.kernels.threads.get_num_threads", lambda: 7)
    assert_nearest_match(embeddings_of(eighths, n_queries, 12), random_codes(4321, 12), k)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 50])
def test_the_nearest_are_found_if_each_code_is_nearer_than_the_last(kind, k):
    embeddings, codes = embeddings_of(kind, 1, 64), random_codes(2000, 64)
    (pairs,) = literal_pairs(embeddings, codes)
    farthest_first = [position for _, position in reversed(pairs)]
    assert_nearest_match(embeddings, codes[farthest_first], k)


@pytest.mark.parametrize("kind", KINDS)
def test_equal_codes_are_in_database_order(kind):
    codes = np.repeat(random_codes(1, 64), 1000, axis=0)
    distances, positions = search(embeddings_of(kind, 2, 64), codes, k=7)
    np.testing.assert_array_equal(positions, [range(7)] * 2)
    assert np.all(distances == distances[:, :1])


@pytest.mark.parametrize(("n_queries", "n", "k"), [(0, 5, 3), (2, 0, 3), (2, 5, 0)])
def test_no_queries_no_codes_or_no_neighbours_give_empty_results(n_queries, n, k):
    distances, positions = search(embeddings_of(uniform, n_queries, 16), random_codes(n, 16), k)
    assert distances.shape == positions.shape == (n_queries, min(k, n))


def assert_nearest_match(embeddings, codes, k):
    found = search(embeddings, codes, k)
    expected = np.array([pairs[:k] for pairs in literal_pairs(embeddings, codes)])
    np.testing.assert_array_equal(found[0], expected[:, :, 0])
    np.testing.assert_array_equal(found[1], expected[:, :, 1])


def search(embeddings, codes, k):
    queries = as_words(pack(binarize(embeddings)))
    return nearest_weighted(queries, bit_weights(embeddings)[0], as_words(codes), k)


def literal_pairs(embeddings, codes):
    """Add the weights of differing bits in plain Python: sorted pairs (sum, position)."""
    own, weights = binarize(embeddings).tolist(), bit_weights(embeddings)[0].tolist()
    rows = unpack(codes, embeddings.shape[1]).tolist()
    return [
        sorted(
            (sum(w for w, a, b in zip(weights[q], own[q], row, strict=True) if a != b), position)
            for position, row in enumerate(rows)
        )
        for q in range(len(embeddings))
    ]


def embeddings_of(kind, n, n_bits):
    return kind(np.random.default_rng(n_bits), (n, n_bits))


def random_codes(n, n_bits):
    return np.packbits(np.random.default_rng(1).random((n, n_bits)) < 0.5, axis=1)
