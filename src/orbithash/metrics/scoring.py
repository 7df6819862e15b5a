"""Evaluation of packed codes: their scores as means over the queries."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int32, Int64, Shaped, UInt8, UInt64
from numpy.typing import ArrayLike

from orbithash.codes import as_codes, binarize, pack
from orbithash.errors import InputError
from orbithash.kernels.plain_search import as_words
from orbithash.kernels.scoring.average_precision import sorted_precision_sums, stable_precision_sums
from orbithash.kernels.scoring.histograms import graded_histograms
from orbithash.metrics.asymmetric import asymmetric_average_precision
from orbithash.metrics.look import count_distinct, mean_look, nearest_by_cosine
from orbithash.metrics.means import RunningMeans, mean_by_class
from orbithash.metrics.ndcg import expected_ndcg
from orbithash.metrics.precision import (
    counts_before,
    divide_by_relevant,
    expected_average_precision,
    hit_among_first,
    optimistic_average_precision,
    pessimistic_average_precision,
    precision_of_first,
    precision_within,
    recall_within,
)
from orbithash.metrics.scores import PrecisionRecall, Scores
from orbithash.relevance import (
    LabelGroups,
    check_labels,
    check_same_kind,
    group_by_labels,
    labels_in_common,
)

BY_HISTOGRAM: dict[str, Callable[..., Float[np.ndarray, " queries"]]] = {
    "expected": expected_average_precision,
    "optimistic": optimistic_average_precision,
    "pessimistic": pessimistic_average_precision,
}
IN_ORDER = ("stable", "argsort")
TIES = (*BY_HISTOGRAM, *IN_ORDER)
CHUNK_NUMBERS = 1 << 21  # memory of a chunk of queries; does not change any score
PRECISION_AT = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
RECALL_AT = (1, 10)


def evaluate_codes(
    query_codes: ArrayLike,
    database_codes: ArrayLike,
    query_labels: ArrayLike,
    database_labels: ArrayLike,
    *,
    n_bits: int,
    ties: str = "expected",
    map_at: Sequence[int] = (),
    precision_at: Sequence[int] = PRECISION_AT,
    recall_at: Sequence[int] = (),
    map_at_r: bool = False,
    leave_one_out: bool | ArrayLike = False,
    query_embeddings: ArrayLike | None = None,
    query_teacher: ArrayLike | None = None,
    database_teacher: ArrayLike | None = None,
) -> Scores:
    """Rank the database by Hamming distance for each query, and score the ranking.

    Args:
        ties: how `map`, `map_at` and `map_at_r` order items at the same distance: "expected" is
            the mean over all orders, "optimistic" and "pessimistic" are the best and the worst
            order, "stable" is database order, and "argsort" is the order of `numpy.argsort` by
            default, which depends on the version of numpy and on the processor.
        map_at: the N of MAP@N.
        precision_at: the N of precision@N; those beyond the size of the database are left out.
        recall_at: the N of Recall@N, the share of queries with a relevant item among the first N.
        map_at_r: also MAP@R, that is MAP over the first R items, R being the number of relevant
            ones (Musgrave et al., "A Metric Learning Reality Check", 2020).
        leave_one_out: Queries and database are the same items, and no item is in its own ranking.
            If the queries are only some of the items, their positions in the database.
        query_embeddings: the embeddings of the query codes; they add `map_asymmetric`, the MAP of
            ranking the database by its asymmetric distance to them.
        query_teacher: features of the queries, as of a network; with those of the database, they
            add `look`, and with embeddings `look_asymmetric`.
        database_teacher: features of the database, of the same network.

    Two items are at distance 1 from the query, in either order, and one of them is relevant:

    >>> codes = np.array([[0b10000000], [0b01000000]], dtype=np.uint8)
    >>> query = np.array([[0]], dtype=np.uint8)
    >>> scores = evaluate_codes(query, codes, np.array([7]), np.array([7, 8]), n_bits=4)
    >>> scores.map, scores.map_bounds
    (0.75, (0.5, 1.0))
    """
    check_options(ties, map_at=map_at, precision_at=precision_at, recall_at=recall_at)
    query_codes = as_codes(query_codes, n_bits, "query")
    database_codes = as_codes(database_codes, n_bits, "database")
    for name, codes in (("query", query_codes), ("database", database_codes)):
        if not len(codes):
            raise InputError(
                f"got no {name} codes; scores need at least one: check the split they come from"
            )
    own = positions_of_queries(leave_one_out, query_codes, database_codes)
    query_labels = check_labels(np.asarray(query_labels), len(query_codes), "query")
    database_labels = check_labels(np.asarray(database_labels), len(database_codes), "database")
    check_same_kind(query_labels, database_labels)
    check_teacher(query_teacher, database_teacher, len(query_codes), len(database_codes))
    embeddings = None
    if query_embeddings is not None:
        embeddings = checked_embeddings(query_embeddings, query_codes, n_bits)

    n_database = len(database_codes) - (own is not None)
    wanted = Wanted(
        ties=ties,
        map_at=distinct(map_at),
        precision_at=distinct(n for n in precision_at if n <= n_database),
        recall_at=distinct(recall_at),
        map_at_r=map_at_r,
    )
    means, average_precision = query_means(
        as_words(query_codes),
        as_words(database_codes),
        query_labels,
        group_by_labels(database_labels),
        wanted,
        n_bits=n_bits,
        own=own,
    )
    n_scored = int(np.count_nonzero(~np.isnan(average_precision)))
    if not n_scored:
        raise InputError(
            f"got {len(query_codes)} queries, and none shares a label with any of the "
            f"{len(database_codes)} database items; number both by the same classes"
        )
    map_asymmetric = None
    if embeddings is not None:
        by_embedding = asymmetric_average_precision(
            embeddings,
            database_codes,
            query_labels,
            database_labels,
            own=own,
        )
        map_asymmetric = float(np.nanmean(by_embedding))
    look = look_asymmetric = None
    if query_teacher is not None and database_teacher is not None:
        nearest = nearest_by_cosine(query_teacher, database_teacher, own=own)
        look, look_asymmetric = mean_look(query_codes, database_codes, nearest, embeddings, own)
    low, high = float(means["pessimistic"]), float(means["optimistic"])
    return Scores(
        map=min(max(float(means["map"]), low), high),  # rounding must not leave the bounds
        map_bounds=(low, high),
        ndcg=float(means["ndcg"]),
        precision_recall=PrecisionRecall(
            precision=means["precision"],
            recall=means["recall"],
            precision_or_zero=means.sum_of("precision") / n_scored,
            empty=1 - means.count_of("precision") / n_scored,
        ),
        precision_at=means.by_cutoff("precision_at", wanted.precision_at),
        map_at=means.by_cutoff("map_at", wanted.map_at),
        map_at_found=means.by_cutoff("map_at_found", wanted.map_at),
        ties=ties,
        n_bits=int(n_bits),
        queries=len(query_codes),
        queries_without_relevant=len(query_codes) - n_scored,
        database=n_database,
        map_asymmetric=map_asymmetric,
        map_by_class=mean_by_class(average_precision, query_labels),
        nothing_found_at=means.by_cutoff("nothing_found_at", wanted.map_at),
        map_at_r=float(means["map_at_r"]) if map_at_r else None,
        recall_at=means.by_cutoff("recall_at", wanted.recall_at),
        look=look,
        look_asymmetric=look_asymmetric,
        distinct_codes=count_distinct(database_codes),
        average_precision=average_precision,
    )


def positions_of_queries(
    leave_one_out: bool | ArrayLike,
    query_codes: UInt8[np.ndarray, "queries bytes"],
    database_codes: UInt8[np.ndarray, "database bytes"],
) -> Int64[np.ndarray, " queries"] | None:
    """Return where each query is in the database; None if no item is left out."""
    if leave_one_out is False:
        return None
    everything = np.arange(len(database_codes))
    own = everything if leave_one_out is True else np.asarray(leave_one_out, dtype=np.int64)
    in_database = np.isin(own, everything).all()
    if not in_database or not np.array_equal(query_codes, database_codes[own]):
        raise InputError("got leave_one_out with different queries and database; give the same")
    return own


def check_teacher(
    query_teacher: ArrayLike | None, database_teacher: ArrayLike | None, n: int, n_database: int
) -> None:
    """Raise unless there are features of all queries and all of the database, or of none."""
    if query_teacher is None and database_teacher is None:
        return
    if query_teacher is None or database_teacher is None:
        raise InputError("got teacher features of queries or database alone; give both or neither")
    found = len(np.asarray(query_teacher)), len(np.asarray(database_teacher))
    if found != (n, n_database):
        raise InputError(
            f"got teacher features of {found[0]} queries and {found[1]} database items for codes "
            f"of {n} and {n_database}; pass one row of features per code"
        )


def checked_embeddings(
    embeddings: ArrayLike, codes: UInt8[np.ndarray, "n bytes"], n_bits: int
) -> Float[np.ndarray, "n bits"]:
    """Return embeddings as an array; raise unless these are their codes."""
    array = np.asarray(embeddings)
    bits = binarize(array)
    if array.shape != (len(codes), n_bits) or not np.array_equal(pack(bits), codes):
        raise InputError(
            f"got query embeddings of shape {array.shape} that do not have the {len(codes)} query "
            f"codes of {n_bits} bits; pass the embeddings that the codes were made from"
        )
    return array


@dataclass(frozen=True)
class Wanted:
    """Which scores to compute."""

    ties: str
    map_at: tuple[int, ...]
    precision_at: tuple[int, ...]
    recall_at: tuple[int, ...]
    map_at_r: bool


def query_means(
    queries: UInt64[np.ndarray, "words queries"],
    database: UInt64[np.ndarray, "words database"],
    query_labels: Shaped[np.ndarray, "queries *classes"],
    groups: LabelGroups,
    wanted: Wanted,
    *,
    n_bits: int,
    own: Int64[np.ndarray, " queries"] | None = None,
) -> tuple[RunningMeans, Float[np.ndarray, " queries"]]:
    """Return the means over the queries that have relevant items, and the AP of each query."""
    by_group = np.ascontiguousarray(database[:, groups.order])
    means, average_precision = RunningMeans(), np.full(len(query_labels), np.nan)
    # A row of grades, and histograms of all items and of each grade.
    numbers_per_query = len(groups.labels) + (n_bits + 1) * (1 + max_labels(groups.labels))
    for chunk in chunks(len(query_labels), numbers_per_query):
        grades = labels_in_common(query_labels[chunk], groups.labels)
        # A query without relevant items is left out of all means.
        has_relevant = grades.any(axis=1)
        chunk, grades = chunk[has_relevant], grades[has_relevant]
        words = np.ascontiguousarray(queries[:, chunk])
        items, by_grade = graded_histograms(words, by_group, groups.starts, grades, n_bits)
        if own is not None:
            remove_self(items, by_grade, query_labels[chunk])
            kept = by_grade.any(axis=(1, 2))
            items, by_grade, chunk, grades = items[kept], by_grade[kept], chunk[kept], grades[kept]
        values = histogram_scores(items, by_grade, wanted)
        if wanted.ties in IN_ORDER or wanted.map_at:
            words = np.ascontiguousarray(queries[:, chunk])
            left_out = np.full(len(chunk), -1) if own is None else own[chunk]
            relevant = by_grade.sum(axis=1)
            values |= scores_in_order(
                words, database, groups, grades, items, relevant, left_out, wanted
            )
        means.add(values)
        average_precision[chunk] = values["map"]
    return means, average_precision


def remove_self(
    items: Int64[np.ndarray, "queries distances"],
    by_grade: Int64[np.ndarray, "queries grades distances"],
    labels: Shaped[np.ndarray, "queries *classes"],
) -> None:
    """Take each query out of its own histograms: distance 0, all of its labels in common."""
    grades = np.ones(len(labels), dtype=np.int64) if labels.ndim == 1 else labels.sum(axis=1)
    items[:, 0] -= 1
    by_grade[np.arange(len(labels)), grades - 1, 0] -= 1


def histogram_scores(
    items: Int64[np.ndarray, "queries distances"],
    by_grade: Int64[np.ndarray, "queries grades distances"],
    wanted: Wanted,
) -> dict[Any, Float[np.ndarray, "queries ..."]]:
    """Return the scores of each query that histograms give."""
    relevant = by_grade.sum(axis=1)
    values: dict[Any, np.ndarray] = {
        "pessimistic": pessimistic_average_precision(items, relevant),
        "optimistic": optimistic_average_precision(items, relevant),
        "ndcg": expected_ndcg(items, by_grade),
        "precision": precision_within(items, relevant),
        "recall": recall_within(relevant),
    }
    for n in wanted.precision_at:
        values["precision_at", n] = precision_of_first(items, relevant, n)
    for n in wanted.recall_at:
        values["recall_at", n] = hit_among_first(items, relevant, n)
    if wanted.ties in BY_HISTOGRAM:
        average_precision = BY_HISTOGRAM[wanted.ties]
        values["map"] = average_precision(items, relevant)
        for n in wanted.map_at:
            values["map_at", n] = average_precision(items, relevant, n)
        if wanted.map_at_r:
            values["map_at_r"] = average_precision(items, relevant, relevant.sum(axis=1))
    return values


def scores_in_order(
    queries: UInt64[np.ndarray, "words queries"],
    database: UInt64[np.ndarray, "words database"],
    groups: LabelGroups,
    grades: Int32[np.ndarray, "queries groups"],
    items: Int64[np.ndarray, "queries distances"],
    relevant: Int64[np.ndarray, "queries distances"],
    left_out: Int64[np.ndarray, " queries"],
    wanted: Wanted,
) -> dict[Any, Float[np.ndarray, " queries"]]:
    """Return AP in one order of the ties and AP@N by the relevant found, in a second pass."""
    n_relevant = relevant.sum(axis=1)
    # MAP@N, MAP@R and MAP.
    cutoffs = np.empty((len(items), len(wanted.map_at) + 2), dtype=np.int64)
    cutoffs[:, :-2], cutoffs[:, -2], cutoffs[:, -1] = wanted.map_at, n_relevant, database.shape[1]
    is_relevant = grades > 0
    if wanted.ties == "argsort":
        sums, found = sorted_precision_sums(
            queries, database, groups.group, is_relevant, cutoffs, left_out
        )
    else:
        before, relevant_before = counts_before(items), counts_before(relevant)
        sums, found = stable_precision_sums(
            queries, database, groups.group, is_relevant, before, relevant_before, cutoffs, left_out
        )
    values: dict[Any, np.ndarray] = {}
    for column, n in enumerate(wanted.map_at):
        # No relevant items among the first N: AP is 0.
        values["map_at_found", n] = sums[:, column] / np.maximum(found[:, column], 1)
        values["nothing_found_at", n] = (found[:, column] == 0).astype(float)
    if wanted.ties in IN_ORDER:
        for column, n in enumerate(wanted.map_at):
            values["map_at", n] = divide_by_relevant(sums[:, column], relevant, n)
        if wanted.map_at_r:
            values["map_at_r"] = divide_by_relevant(sums[:, -2], relevant, None)
        values["map"] = divide_by_relevant(sums[:, -1], relevant, None)
    return values


def chunks(n_queries: int, numbers_per_query: int) -> Iterator[Int64[np.ndarray, " chunk"]]:
    """Yield the row numbers of the queries in chunks of bounded memory."""
    size = max(1, CHUNK_NUMBERS // numbers_per_query)
    for start in range(0, n_queries, size):
        yield np.arange(start, min(start + size, n_queries))


def max_labels(labels: Shaped[np.ndarray, "groups *classes"]) -> int:
    """Return the largest number of labels of one image, which bounds the grades."""
    return 1 if labels.ndim == 1 else int(labels.sum(axis=1).max())


def check_options(ties: str, **cutoffs: Sequence[int]) -> None:
    if ties not in TIES:
        raise InputError(f"got ties={ties!r}; choose one of {', '.join(TIES)}")
    for name, numbers in cutoffs.items():
        if not all(isinstance(cutoff, int | np.integer) and cutoff >= 1 for cutoff in numbers):
            raise InputError(f"got {name}={tuple(numbers)}; pass whole numbers from 1 on")


def distinct(cutoffs: Iterable[int]) -> tuple[int, ...]:
    """Return cutoffs as integers, in their order and each once.

    >>> distinct([10, 1, 10])
    (10, 1)
    """
    return tuple(dict.fromkeys(map(int, cutoffs)))
