"""Scores of float vectors themselves, which codes are compared with: the price of the bits."""

import numpy as np
from jaxtyping import Float, Float64, Int32, Int64
from numpy.typing import ArrayLike

from orbithash.errors import InputError
from orbithash.metrics.look import INDEX_BITS, LAST, as_rows, ranking_keys, slices, unit_vectors
from orbithash.metrics.means import mean_by_class
from orbithash.metrics.ndcg import expected_ndcg
from orbithash.metrics.scores import PrecisionRecall, Scores, no_radii
from orbithash.metrics.scoring import PRECISION_AT, RECALL_AT
from orbithash.relevance import check_labels, check_same_kind, labels_in_common

CHUNK_PAIRS = 1 << 21  # of queries and items that are ranked at once, some 60 bytes each


def evaluate_floats(
    queries: ArrayLike,
    database: ArrayLike,
    query_labels: ArrayLike,
    database_labels: ArrayLike,
    *,
    centre: Float[np.ndarray, " d"] | None = None,
    own: Int64[np.ndarray, " queries"] | None = None,
) -> Scores:
    """Rank the database by centred cosine for each query, and score the ranking.

    Vectors are centred on `centre`, by default the mean of the database, as for the look. Equal
    cosines are in database order, so there are no ties and both bounds of MAP are MAP. `n_bits` are
    those of the vector in memory; Hamming balls have no counterpart. With `own`, the position of
    each query in the database, no query finds itself.

    >>> scores = evaluate_floats([[1.0, 2.0]], [[3.0, 0.0], [0.0, 3.0], [-3, -3]], [7], [7, 8, 9])
    >>> scores.map, scores.recall_at[1]
    (0.5, 0.0)
    """
    query_rows, rows = as_rows(queries, "query"), as_rows(database, "database")
    of_queries = check_labels(np.asarray(query_labels), len(query_rows), "query")
    of_database = check_labels(np.asarray(database_labels), len(rows), "database")
    check_same_kind(of_queries, of_database)
    mean = rows.mean(axis=0, dtype=np.float64) if centre is None else centre.astype(np.float64)
    directions = unit_vectors(rows, mean)
    n_database = len(rows) - (own is not None)
    parts = []
    for chunk in slices(len(query_rows), CHUNK_PAIRS // len(rows)):
        keys = ranking_keys(unit_vectors(query_rows[chunk], mean) @ directions.T, 0)
        if own is not None:
            keys[np.arange(len(keys)), own[chunk]] = LAST
        keys.sort(axis=1)
        order = keys[:, :n_database] & ((1 << INDEX_BITS) - 1)
        grades = labels_in_common(of_queries[chunk], of_database)
        parts.append(list_scores(np.take_along_axis(grades, order, axis=1)))
    values = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    average_precision = values["map"]
    n_scored = int(np.count_nonzero(~np.isnan(average_precision)))
    if not n_scored:
        raise InputError(
            f"got {len(query_rows)} queries, and none shares a label with any of the {len(rows)} "
            "database items; number both by the same classes"
        )
    means = {name: float(np.nanmean(value)) for name, value in values.items()}
    return Scores(
        map=means["map"],
        map_bounds=(means["map"], means["map"]),
        ndcg=means["ndcg"],
        precision_recall=PrecisionRecall(no_radii(), no_radii()),
        precision_at={n: means[f"precision@{n}"] for n in PRECISION_AT if n <= n_database},
        map_at={},
        map_at_found={},
        ties="stable",
        n_bits=8 * rows.dtype.itemsize * rows.shape[1],
        queries=len(query_rows),
        queries_without_relevant=len(query_rows) - n_scored,
        database=n_database,
        map_by_class=mean_by_class(average_precision, of_queries),
        map_at_r=means["map_at_r"],
        recall_at={n: means[f"recall@{n}"] for n in RECALL_AT},
        average_precision=average_precision,
    )


def list_scores(
    grades: Int32[np.ndarray, "queries ranks"],
) -> dict[str, Float64[np.ndarray, " queries"]]:
    """Return the scores of ranked lists by the grades of their items; NaN without relevant items.

    >>> scores = list_scores(np.array([[0, 1, 1]], dtype=np.int32))
    >>> scores["map"].round(3), scores["map_at_r"], scores["recall@1"]
    (array([0.583]), array([0.25]), array([0.]))
    """
    is_relevant = grades > 0
    ranks = np.arange(1, grades.shape[1] + 1)
    found = is_relevant.cumsum(axis=1)
    n_relevant = found[:, -1]
    divisor = np.where(n_relevant > 0, n_relevant, np.nan)
    precisions = found / ranks * is_relevant
    by_grade = grades[:, None, :] == np.arange(1, max(1, int(grades.max())) + 1)[:, None]
    scores = {
        "map": precisions.sum(axis=1) / divisor,
        "map_at_r": (precisions * (ranks <= n_relevant[:, None])).sum(axis=1) / divisor,
        # Each rank is a tie of one item.
        "ndcg": expected_ndcg(np.ones_like(found), by_grade.astype(np.int64)),
    }
    for n in PRECISION_AT:
        if n <= grades.shape[1]:
            scores[f"precision@{n}"] = np.where(n_relevant > 0, found[:, n - 1] / n, np.nan)
    for n in RECALL_AT:
        hit = found[:, min(n, grades.shape[1]) - 1] > 0
        scores[f"recall@{n}"] = np.where(n_relevant > 0, hit, np.nan)
    return scores
