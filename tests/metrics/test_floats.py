import math

import numpy as np
import pytest

from orbithash.errors import InputError
from orbithash.metrics.floats import evaluate_floats


@pytest.mark.parametrize("many_labels", [False, True])
@pytest.mark.parametrize("alone", [False, True])
def test_scores_match_those_of_lists_sorted_one_by_one(many_labels, alone):
    queries, database, query_labels, labels = vectors(many_labels=many_labels)
    own = None
    if alone:  # some of the database are the queries, and find all others
        own = np.array([3, 20, 8, 31, 0])
        queries, query_labels = database[own], labels[own]
    scores = evaluate_floats(queries, database, query_labels, labels, own=own)
    expected = [
        literal_scores(query, database, grades_of(query_label, labels), leave_out=leave_out)
        for query, query_label, leave_out in zip(
            queries, query_labels, [None] * 5 if own is None else own, strict=True
        )
    ]
    found = [scores.map, scores.recall_at[1], scores.map_at_r, scores.ndcg, scores.precision_at[5]]
    np.testing.assert_allclose(found, np.nanmean(expected, axis=0), atol=1e-10)
    assert scores.map_bounds == (scores.map, scores.map)
    assert scores.database == len(database) - alone


def test_equal_vectors_are_in_database_order():
    database = np.array([[1.0, 0], [1, 0], [-1, 0], [-1, 0]])
    first, second = [7, 1, 2, 3], [1, 7, 2, 3]
    assert evaluate_floats([[1.0, 0]], database, [7], first).map == 1
    assert evaluate_floats([[1.0, 0]], database, [7], second).map == 0.5


def test_another_centre_changes_the_directions():
    database, labels = np.array([[2.0, 1], [1, 3]]), [7, 8]
    assert evaluate_floats([[4.0, 4]], database, [7], labels, centre=np.zeros(2)).map == 1
    assert evaluate_floats([[4.0, 4]], database, [7], labels, centre=np.array([0, 2.0])).map == 0.5


def test_queries_without_relevant_items_are_left_out():
    database = np.array([[1.0, 0], [-1, 0]])
    scores = evaluate_floats([[1.0, 0], [1, 0]], database, [7, 9], [7, 8])
    assert (scores.map, scores.queries, scores.queries_without_relevant) == (1.0, 2, 1)
    with pytest.raises(InputError, match="none shares a label"):
        evaluate_floats([[1.0, 0]], database, [9], [7, 8])


def literal_scores(query, database, grades, *, leave_out):
    """MAP, Recall@1, MAP@R, NDCG and precision at 5 of one query."""
    mean = database.mean(axis=0)
    cosines = [
        np.dot(query - mean, item - mean) / math.dist(query, mean) / math.dist(item, mean)
        for item in database
    ]
    items = [item for item in range(len(database)) if item != leave_out]
    ranked = [grades[item] for item in sorted(items, key=lambda item: (-cosines[item], item))]
    n_relevant = sum(grade > 0 for grade in ranked)
    if not n_relevant:
        return [math.nan] * 5
    precisions = [
        sum(grade > 0 for grade in ranked[: rank + 1]) / (rank + 1) if ranked[rank] else 0
        for rank in range(len(ranked))
    ]
    gains, best = (
        sum((2.0**grade - 1) / math.log2(rank + 2) for rank, grade in enumerate(each))
        for each in (ranked, sorted(ranked, reverse=True))
    )
    return [
        sum(precisions) / n_relevant,
        ranked[0] > 0,
        sum(precisions[:n_relevant]) / n_relevant,
        gains / best,
        sum(grade > 0 for grade in ranked[:5]) / 5,
    ]


def grades_of(query_label, labels):
    if labels.ndim == 1:
        return [int(label == query_label) for label in labels]
    return [int((label & query_label).sum()) for label in labels]


def vectors(*, many_labels):
    rng = np.random.default_rng(0)
    queries, database = rng.standard_normal((5, 6)), rng.standard_normal((40, 6))
    if many_labels:
        return queries, database, rng.random((5, 4)) < 0.4, rng.random((40, 4)) < 0.4
    return queries, database, np.array([0, 1, 2, 3, 9]), rng.integers(0, 4, 40)
