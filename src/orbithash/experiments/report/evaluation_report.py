"""The report of `orbithash evaluate`: scores by class, confusions, and the worst queries."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int32, Int64, Shaped

from orbithash.data.codes_file import LabelledCodes
from orbithash.encoders import Encoded, RunRecord
from orbithash.evaluation import Scores, class_names, query_and_database, worst_queries
from orbithash.experiments.report.examples import ExampleHit, image_folders, thumbnail_uris
from orbithash.experiments.report.figure import (
    precision_at_figure,
    precision_recall_figure,
    score_curves,
)
from orbithash.experiments.report.html import Picture, render_page, svg_picture
from orbithash.experiments.report.score_table import score_lines
from orbithash.experiments.tables.sources import SourceData, label_text
from orbithash.kernels.search.nearest import nearest_codes
from orbithash.relevance import related

N_HITS = 10  # nearest images of a query that are looked at
N_WORST = 12  # queries that are shown
N_PAIRS = 12  # most frequent confusions
N_CONFUSED = 3  # of each class, in the table
MAX_CLASSES = 500  # in the table; the scores' JSON has all of them
CHUNK = 1024  # queries searched at once
SIDE = 112  # pixels of a thumbnail, of about 4 kB


@dataclass(frozen=True)
class Confusion:
    """Results of another class among the nearest of a class's queries."""

    query_class: str
    result_class: str
    count: int
    share: float  # of all nearest results of the class's queries


@dataclass(frozen=True)
class ClassRow:
    """One class in the table of classes."""

    name: str
    n_queries: int
    map: float
    confusions: tuple[Confusion, ...]  # most frequent first


@dataclass(frozen=True)
class QueryRow:
    """A query and its nearest images."""

    row: int
    label: str
    average_precision: float
    n_related: int  # among the hits
    hits: tuple[ExampleHit, ...]


def write_evaluation_report(
    file: Path,
    scores: Scores,
    encoded: Encoded | LabelledCodes,
    data: SourceData | LabelledCodes,
    record: RunRecord | None,
    *,
    run: str,
    source: str,
    notes: Sequence[str] = (),
) -> None:
    """Write the page; `encoded` are the rows that `scores` are about, `notes` warn the reader.

    Codes of a file have no `record`.
    """
    classes = class_rows(scores, encoded, data)
    confusions = [confusion for row in classes for confusion in row.confusions]
    worst = [
        query_row(encoded, data, row, average_precision)
        for row, average_precision in worst_queries(scores, encoded, data, N_WORST)
    ]
    shown = {query.row for query in worst} | {hit.row for query in worst for hit in query.hits}
    page = render_page(
        "evaluate.html",
        scores=scores,
        record=record,
        run=run,
        source=source,
        title=Path(source).name or source,
        table=score_lines(scores),
        notes=notes,
        classes=classes[:MAX_CLASSES],
        n_classes=len(classes),
        several_labels=data.labels.ndim == 2,
        confusions=sorted(confusions, key=lambda pair: -pair.count)[:N_PAIRS],
        n_confused=N_CONFUSED,
        n_hits=N_HITS,
        worst=worst,
        thumbnails=thumbnail_uris(data, shown, image_folders(source), side=SIDE),
        names={row: item_name(data, row) for row in shown},
        pictures=score_pictures(record.method if record else "codes", scores),
    )
    file.write_text(page, encoding="utf-8")


def score_pictures(method: str, scores: Scores) -> list[Picture]:
    by_radius, by_number = score_curves(method, scores)
    n_bits = scores.n_bits
    return [
        svg_picture(precision_recall_figure([by_radius], n_bits=n_bits), "Precision-recall curve"),
        svg_picture(precision_at_figure([by_number], n_bits=n_bits), "Precision at N"),
    ]


def class_rows(
    scores: Scores, encoded: Encoded | LabelledCodes, data: SourceData | LabelledCodes
) -> list[ClassRow]:
    """Return the classes of the scored queries, that of the lowest MAP first.

    Confusions are counted among the first `N_HITS` results; if the database has fewer images of the
    query's largest class, among as many as it has: an encoder without faults has none.
    """
    query, database = query_and_database(encoded, data)
    scored = query[~np.isnan(scores.average_precision)]
    in_database = class_counts(data.labels[encoded.rows[database]])
    finds_itself = not data.split.has_queries
    n_queries: Counter[int] = Counter()
    n_results: Counter[int] = Counter()
    counts: Counter[tuple[int, int]] = Counter()
    for rows, nearest, _ in nearest_rows(encoded, data, scored):
        labels = data.labels[rows]
        n_right = largest_class(labels, in_database) - finds_itself
        looked_at = np.arange(nearest.shape[1]) < n_right[:, None]
        counts.update(confusion_counts(labels, data.labels[nearest], looked_at))
        n_queries.update(class_counts(labels))
        n_results.update(class_counts(labels, looked_at.sum(axis=1)))
    names = class_names(data, {*n_queries, *(other for _, other in counts)})
    confusions: dict[int, list[Confusion]] = {}
    for (number, other), count in counts.most_common():
        confusions.setdefault(number, []).append(
            Confusion(names[number], names[other], count, count / n_results[number])
        )
    rows_of_table = [
        ClassRow(
            names[number],
            n,
            scores.map_by_class[names[number]],
            tuple(confusions.get(number, [])),
        )
        for number, n in n_queries.items()
    ]
    return sorted(rows_of_table, key=lambda row: row.map)


def nearest_rows(
    encoded: Encoded | LabelledCodes,
    data: SourceData | LabelledCodes,
    queries: Int64[np.ndarray, " queries"],
) -> Iterator[
    tuple[
        Int64[np.ndarray, " chunk"],
        Int64[np.ndarray, "chunk k"],
        Int32[np.ndarray, "chunk k"],
    ]
]:
    """Yield rows of queries, rows of their nearest images, and distances, in chunks.

    `queries` are positions in the encoded rows. Without a split no query finds itself.
    """
    codes, database = encoded.codes, query_and_database(encoded, data)[1]
    finds_itself = not data.split.has_queries
    database_codes = codes[database]
    for start in range(0, len(queries), CHUNK):
        chunk = queries[start : start + CHUNK]
        distances, places = nearest_codes(codes[chunk], database_codes, N_HITS + finds_itself)
        nearest = database[places]
        if finds_itself:
            # The query itself goes last, or the last of many at distance 0 in its place.
            order = np.argsort(nearest == chunk[:, None], axis=1, kind="stable")[:, :-1]
            nearest = np.take_along_axis(nearest, order, axis=1)
            distances = np.take_along_axis(distances, order, axis=1)
        yield encoded.rows[chunk], encoded.rows[nearest], distances


def confusion_counts(
    query_labels: Shaped[np.ndarray, "queries *classes"],
    result_labels: Shaped[np.ndarray, "queries k *classes"],
    looked_at: Bool[np.ndarray, "queries k"],
) -> dict[tuple[int, int], int]:
    """Count the pairs of a query's class and the class of a result that shares no label with it.

    >>> confusion_counts(np.array([3, 5]), np.array([[3, 5], [3, 3]]), np.ones((2, 2), bool))
    {(3, 5): 1, (5, 3): 2}
    """
    if query_labels.ndim == 1:
        left = np.broadcast_to(query_labels[:, None], result_labels.shape)
        is_wrong = looked_at & (left != result_labels)
        pairs = np.stack([left[is_wrong], result_labels[is_wrong]], axis=1)
        found, counts = np.unique(pairs, axis=0, return_counts=True)
    else:
        left, right = query_labels.astype(np.float32), result_labels.astype(np.float32)
        is_wrong = looked_at & (np.einsum("qc,qkc->qk", left, right) == 0)
        # [query's class, result's class], summed over the wrong results.
        table = left.T @ np.einsum("qk,qkc->qc", is_wrong.astype(np.float32), right)
        found = np.argwhere(table)
        counts = table[table > 0]
    return {(int(a), int(b)): int(count) for (a, b), count in zip(found, counts, strict=True)}


def class_counts(
    labels: Shaped[np.ndarray, "n *classes"], weights: Int64[np.ndarray, " n"] | None = None
) -> dict[int, int]:
    """Return the number of images of each class, or the sum of their weights, by class number.

    >>> class_counts(np.array([3, 5, 3])), class_counts(np.array([3, 5, 3]), np.array([1, 1, 4]))
    ({3: 2, 5: 1}, {3: 5, 5: 1})
    """
    if weights is None:
        weights = np.ones(len(labels), dtype=np.int64)
    if labels.ndim == 2:
        rows, labels = np.nonzero(labels)
        weights = weights[rows]
    found, positions = np.unique(labels, return_inverse=True)
    sums = np.bincount(positions, weights, minlength=len(found))
    return {int(number): int(total) for number, total in zip(found, sums, strict=True)}


def largest_class(
    labels: Shaped[np.ndarray, "n *classes"], sizes: Mapping[int, int]
) -> Int64[np.ndarray, " n"]:
    """Return the size of the largest class of each image."""
    if labels.ndim == 1:
        return np.array([sizes.get(label, 0) for label in labels.tolist()], dtype=np.int64)
    of_class = np.array([sizes.get(number, 0) for number in range(labels.shape[1])], dtype=np.int64)
    return np.asarray((labels * of_class).max(axis=1))


def query_row(
    encoded: Encoded | LabelledCodes,
    data: SourceData | LabelledCodes,
    row: int,
    average_precision: float,
) -> QueryRow:
    """Search for the nearest images of one query."""
    ((_, nearest, distances),) = nearest_rows(encoded, data, np.flatnonzero(encoded.rows == row))
    is_related = related(data.labels[[row]], data.labels[nearest[0]])[0]
    hits = tuple(
        ExampleHit(hit, label_text(data, hit), shares_label, distance)
        for hit, shares_label, distance in zip(
            nearest[0].tolist(), is_related.tolist(), distances[0].tolist(), strict=True
        )
    )
    n_related = int(is_related.sum())
    return QueryRow(row, label_text(data, row), average_precision, n_related, hits)


def item_name(data: SourceData | LabelledCodes, row: int) -> str:
    return f"row {row}" if data.paths is None else data.paths[row]
