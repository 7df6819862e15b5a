"""MAP of asymmetric ranking, against a literal sort."""

from itertools import permutations

import numpy as np
import pytest

from orbithash.codes import binarize, pack
from orbithash.errors import InputError
from orbithash.evaluation import evaluate_codes
from orbithash.metrics.asymmetric import asymmetric_average_precision
from orbithash.metrics.precision import expected_average_precision


def test_average_precision_is_that_of_sorting_by_the_sum_of_differences():
    queries, bits, query_labels, labels = problem(n_bits=10, levels=None)
    found = asymmetric_average_precision(queries, pack(bits), query_labels, labels)
    for query, label, value in zip(queries, query_labels, found, strict=True):
        order = np.argsort(np.abs(query - bits).sum(axis=1), kind="stable")
        is_relevant = labels[order] == label
        ranks = np.flatnonzero(is_relevant) + 1
        assert value == pytest.approx(np.mean(np.arange(1, len(ranks) + 1) / ranks))


def test_ties_count_with_the_mean_over_all_their_orders():
    queries, bits, query_labels, labels = problem(n_bits=5, levels=2)
    found = asymmetric_average_precision(queries, pack(bits), query_labels, labels)
    for query, label, value in zip(queries, query_labels, found, strict=True):
        distances = np.abs(query - bits).sum(axis=1)
        _, tie, items = np.unique(distances.round(9), return_inverse=True, return_counts=True)
        relevant = np.bincount(tie, labels == label).astype(int)
        assert value == pytest.approx(expected_average_precision(items[None], relevant[None])[0])


def test_one_tie_of_four_is_the_mean_of_its_permutations():
    labels = np.array([1, 1, 0, 0])
    values = []
    for order in permutations(range(4)):
        ranks = np.flatnonzero(labels[list(order)]) + 1
        values.append(np.mean(np.arange(1, len(ranks) + 1) / ranks))
    database = np.repeat(np.array([[0b10100000]], dtype=np.uint8), 4, axis=0)
    found = asymmetric_average_precision(np.full((1, 4), 0.3), database, np.array([1]), labels)
    assert found == pytest.approx(np.mean(values))


def test_embeddings_of_zeros_and_ones_rank_as_hamming_distances_do():
    _, bits, _, labels = problem(n_bits=6, levels=None)
    codes, halves = pack(bits), np.arange(len(bits)) < 12
    scores = evaluate_codes(
        codes[halves],
        codes[~halves],
        labels[halves],
        labels[~halves],
        n_bits=6,
        query_embeddings=bits[halves].astype(float),
    )
    assert scores.map_asymmetric == pytest.approx(scores.map)


def test_no_item_is_in_its_own_ranking():
    _, bits, _, labels = problem(n_bits=6, levels=None)
    embeddings = np.where(bits, 0.8, 0.1)
    scores = evaluate_codes(
        *(pack(bits), pack(bits), labels, labels),
        n_bits=6,
        leave_one_out=True,
        query_embeddings=embeddings,
    )
    values = []
    for row in range(len(bits)):
        others = np.arange(len(bits)) != row
        values += asymmetric_average_precision(
            embeddings[row : row + 1], pack(bits[others]), labels[row : row + 1], labels[others]
        ).tolist()
    assert scores.map_asymmetric == pytest.approx(np.nanmean(values))


def test_a_query_without_relevant_items_has_no_average_precision():
    database = np.zeros((2, 1), dtype=np.uint8)
    found = asymmetric_average_precision(
        np.full((1, 8), 0.2), database, np.array([3]), np.array([1, 2])
    )
    assert np.isnan(found).all()


def test_several_labels_are_related_by_one_in_common():
    database = np.array([[0], [0b11110000]], dtype=np.uint8)
    labels = np.array([[1, 0, 0], [0, 1, 1]], dtype=bool)
    query = np.array([[0.1, 0.2, 0.1, 0.3]])
    found = asymmetric_average_precision(query, database, np.array([[0, 1, 0]], bool), labels)
    assert found == pytest.approx([0.5])


def test_embeddings_of_other_codes_are_refused():
    codes = pack(binarize(np.full((2, 8), 0.9)))
    labels = np.array([0, 1])
    with pytest.raises(InputError, match="the embeddings that the codes were made from"):
        evaluate_codes(
            codes, codes, labels, labels, n_bits=8, query_embeddings=np.full((2, 8), 0.1)
        )


def problem(n_bits: int, levels: int | None):
    """Return embeddings of queries, bits of a database, and labels of both.

    With `levels`, embeddings have few values, so that many distances are equal.
    """
    rng = np.random.default_rng(n_bits)
    queries = (
        rng.random((6, n_bits))
        if levels is None
        else rng.integers(0, levels + 1, (6, n_bits)) / levels
    )
    return queries, rng.random((24, n_bits)) > 0.5, rng.integers(0, 3, 6), rng.integers(0, 3, 24)
