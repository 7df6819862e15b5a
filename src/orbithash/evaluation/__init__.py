"""How good codes are: scores of an encoder on a source, and of bare codes."""

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int64, Shaped

from orbithash.data.classes import (
    choose_held_out,
    class_names,
    held_out_numbers,
    unseen_rows,
    without_classes,
)
from orbithash.errors import InputError
from orbithash.metrics.floats import evaluate_floats
from orbithash.metrics.look import mean_look, nearest_by_cosine
from orbithash.metrics.scores import Scores
from orbithash.metrics.scoring import RECALL_AT, evaluate_codes

if TYPE_CHECKING:  # scoring codes must not load torch
    from orbithash.data import ImageSource, LabelledFeatures
    from orbithash.data.codes_file import LabelledCodes
    from orbithash.encoders import Encoded, Encoder, Progress

__all__ = [
    "Scores",
    "class_names",
    "encode_split",
    "evaluate",
    "evaluate_codes",
    "evaluate_features",
    "evaluate_file",
    "evaluate_rows",
    "nearest_items",
    "query_and_database",
    "worst_queries",
]

logger = logging.getLogger(__name__)

# Options of `evaluate_codes` in a report; training, which scores after each epoch, needs only MAP.
REPORTED: dict[str, Any] = {"recall_at": RECALL_AT, "map_at_r": True}

# Queries, and the database that they are searched in, by whether their classes trained.
TRANSFER = (("seen", "seen"), ("unseen", "unseen"), ("seen", "all"), ("unseen", "all"))


def evaluate(
    encoder: "Encoder",
    source: Any,
    *,
    progress: "bool | Progress | None" = None,
    unseen: Sequence[str | int] | None = None,
    **options: Any,
) -> Scores:
    """Search for every query in the database, and score the rankings.

    A source without a split is scored row by row: each is a query against all others. Of nested
    codes, the first bits are scored too, as `prefixes` of the scores. The `look` of the codes is
    scored by the features that the encoder gets, or that its backbone gives. Queries of `unseen`
    classes, by default those that the encoder's run held out, and all others are also scored apart,
    as `transfer` of the scores. Unreadable images are left out. A progress bar is shown by default
    in a terminal. `options` are those of `evaluate_codes`, such as `ties` and `map_at`.
    """
    from orbithash.data import open_source
    from orbithash.encoders.progress import reporting

    data = open_source(source)
    held_out = held_out_classes(encoder)
    if unseen is not None:
        held_out = choose_held_out(data, unseen, seed=0)
    with reporting(progress) as report:
        encoded = encode_split(encoder, data, progress=report, keep_features=True)
    options = REPORTED | options
    return evaluate_rows(encoded, data, prefixes=encoder.nested, unseen=held_out, **options)


def held_out_classes(encoder: "Encoder") -> Sequence[str]:
    """Return the names of the classes that the encoder's run held out."""
    return encoder.training.record.held_out_classes if encoder.training else ()


def evaluate_file(file: str | Path, **options: Any) -> Scores:
    """Score the codes of an `.npz`, whichever program made them.

    It has the arrays codes, n_bits, labels, and query and database, which are row numbers; without
    these, each row is a query against all others. `options` are those of `evaluate_codes`.
    """
    from orbithash.data.codes_file import read_codes

    stored = read_codes(Path(file))
    return evaluate_rows(stored, stored, **(REPORTED | options))


def encode_split(
    encoder: "Encoder",
    data: "ImageSource | LabelledFeatures",
    *,
    progress: "Progress" = lambda done, total: None,
    keep_features: bool = False,
) -> "Encoded":
    """Encode the queries and the database of the split, each row once; without one, all rows."""
    from orbithash.encoders import encode_source

    split = data.split
    rows = np.union1d(split.query, split.database) if split.has_queries else np.arange(len(data))
    return encode_source(encoder, data, rows=rows, progress=progress, keep_features=keep_features)


def evaluate_rows(
    encoded: "Encoded | LabelledCodes",
    data: "ImageSource | LabelledFeatures | LabelledCodes",
    *,
    prefixes: Sequence[int] = (),
    unseen: Collection[str] = (),
    nearest: Int64[np.ndarray, "queries k"] | None = None,
    **options: Any,
) -> Scores:
    """Score the codes of rows: every query of the split against its whole database.

    With `prefixes`, codes of the first bits alone are scored too. With the names of `unseen`
    classes, their queries and the others are also scored apart. If features were kept, they are the
    teacher of the look; `nearest` are its neighbours if they are known, as `nearest_items` returns
    them. `options` are those of `evaluate_codes`.
    """
    split = data.split
    if both := len(np.intersect1d(split.query, split.database)):
        logger.warning("%d queries are also in the database and find themselves first", both)
    lengths = {n: encoded.prefix(n) for n in prefixes} | {encoded.n_bits: encoded}
    scores = {n: score_rows(codes, data, **options) for n, codes in lengths.items()}
    query, database = query_and_database(encoded, data)
    if nearest is None and encoded.features is not None:
        nearest = nearest_items(encoded.features, data, query, database)
    if nearest is not None:
        own = None if split.has_queries else query
        for n, of_length in lengths.items():
            codes, embeddings = of_length.codes, of_length.embeddings
            assert embeddings is not None
            look = mean_look(codes[query], codes[database], nearest, embeddings[query], own)
            scores[n] = replace(scores[n], look=look[0], look_asymmetric=look[1])
    if unseen:
        for n, of_length in lengths.items():
            transfer = transfer_scores(of_length, data, unseen, **options)
            scores[n] = replace(scores[n], transfer=transfer)
    of_code = scores.pop(encoded.n_bits)
    return replace(of_code, prefixes=scores)


def nearest_items(
    features: Shaped[np.ndarray, "n *shape"],
    data: "ImageSource | LabelledFeatures | LabelledCodes",
    query: Int64[np.ndarray, " queries"],
    database: Int64[np.ndarray, " database"],
) -> Int64[np.ndarray, "queries k"]:
    """Return the database items nearest to each query by features, the teacher of the look."""
    own = None if data.split.has_queries else query
    return nearest_by_cosine(features[query], features[database], own=own)


def evaluate_features(data: "LabelledFeatures", *, unseen: Collection[str] = ()) -> Scores:
    """Score the features themselves as codes are scored: floats, ranked by centred cosine.

    They are centred on the mean of the images that train, without those of unseen classes.
    """
    split, everything = data.split, np.arange(len(data))
    rows = data.features.reshape(len(data), -1)
    centre = rows[without_classes(data, unseen).split.train].mean(axis=0, dtype=np.float64)
    query, database = everything, everything
    if split.has_queries:
        query, database = split.query, split.database

    def score(queries: Any, searched: Any, labels: Any) -> Scores:
        scores = evaluate_floats(
            rows[queries],
            rows[searched],
            labels[queries],
            labels[searched],
            centre=centre,
            own=None if split.has_queries else np.searchsorted(searched, queries),
        )
        return with_class_names(scores, data)

    transfer = {}
    for name, queries, searched, labels in transfer_parts(
        everything, query, database, data, unseen
    ):
        with suppress(InputError):  # no query has a relevant item
            transfer[name] = score(queries, searched, labels)
    return replace(score(query, database, data.labels), transfer=transfer)


def score_rows(
    encoded: "Encoded | LabelledCodes",
    data: "ImageSource | LabelledFeatures | LabelledCodes",
    **options: Any,
) -> Scores:
    """Return the scores of codes of one length."""
    query, database = query_and_database(encoded, data)
    return score_positions(encoded, data, query, database, data.labels[encoded.rows], **options)


def transfer_scores(
    encoded: "Encoded | LabelledCodes",
    data: "ImageSource | LabelledFeatures | LabelledCodes",
    unseen: Collection[str],
    **options: Any,
) -> dict[str, Scores]:
    """Score the queries of seen and of unseen classes apart, each in their own part and in all.

    An image is unseen if any of its labels is. For unseen queries, only labels of unseen classes
    count. A part in which no query has a relevant item is left out.
    """
    query, database = query_and_database(encoded, data)
    scores = {}
    for name, queries, searched, labels in transfer_parts(
        encoded.rows, query, database, data, unseen
    ):
        with suppress(InputError):  # no query has a relevant item; all else was scored before
            scores[name] = score_positions(encoded, data, queries, searched, labels, **options)
    return scores


def transfer_parts(
    rows: Int64[np.ndarray, " n"],
    query: Int64[np.ndarray, " queries"],
    database: Int64[np.ndarray, " database"],
    data: "ImageSource | LabelledFeatures | LabelledCodes",
    unseen: Collection[str],
) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield each part of the transfer: its name, queries, database, and the labels that count.

    Queries and database are positions in `rows`, as are the labels.
    """
    numbers = held_out_numbers(data, unseen)
    if not len(numbers):
        if unseen:
            logger.warning("the source has none of the %d held-out classes", len(unseen))
        return
    labels, is_unseen = data.labels[rows], unseen_rows(data, unseen)[rows]
    unseen_labels = labels
    if labels.ndim == 2:
        unseen_labels = np.zeros_like(labels)
        unseen_labels[:, numbers] = labels[:, numbers]
    for of_queries, of_database in TRANSFER:
        queries = query[is_unseen[query] == (of_queries == "unseen")]
        searched = database
        if of_database != "all":
            searched = database[is_unseen[database] == (of_database == "unseen")]
        counted = unseen_labels if of_queries == "unseen" else labels
        yield f"{of_queries} in {of_database}", queries, searched, counted


def score_positions(
    encoded: "Encoded | LabelledCodes",
    data: "ImageSource | LabelledFeatures | LabelledCodes",
    query: Int64[np.ndarray, " queries"],
    database: Int64[np.ndarray, " database"],
    labels: Shaped[np.ndarray, "n *classes"],
    **options: Any,
) -> Scores:
    """Return the scores of some queries in a database: both are positions in the encoded rows."""
    codes = encoded.codes
    if encoded.embeddings is not None:
        options = {"query_embeddings": encoded.embeddings[query]} | options
    scores = evaluate_codes(
        codes[query],
        codes[database],
        labels[query],
        labels[database],
        n_bits=encoded.n_bits,
        # Without a split, the queries are among the database.
        leave_one_out=False if data.split.has_queries else np.searchsorted(database, query),
        **options,
    )
    return with_class_names(scores, data)


def with_class_names(
    scores: Scores, data: "ImageSource | LabelledFeatures | LabelledCodes"
) -> Scores:
    """Return scores whose classes have names instead of numbers."""
    names = class_names(data, map(int, scores.map_by_class))
    by_name = {names[int(number)]: value for number, value in scores.map_by_class.items()}
    return replace(scores, map_by_class=by_name)


def query_and_database(
    encoded: "Encoded | LabelledCodes", data: "ImageSource | LabelledFeatures | LabelledCodes"
) -> tuple[Int64[np.ndarray, " queries"], Int64[np.ndarray, " database"]]:
    """Return the positions of the queries and of the database in the encoded rows."""
    split = data.split
    if not split.has_queries:
        everything = np.arange(len(encoded.rows))
        return everything, everything
    return encoded.positions(split.query), encoded.positions(split.database)


def worst_queries(
    scores: Scores,
    encoded: "Encoded | LabelledCodes",
    data: "ImageSource | LabelledFeatures | LabelledCodes",
    n: int,
) -> list[tuple[int, float]]:
    """Return row and average precision of the `n` queries that are ranked worst, worst first.

    `scores` are those of `evaluate_rows` of the same rows.
    """
    rows = encoded.rows[query_and_database(encoded, data)[0]]
    average_precision = scores.average_precision
    n_scored = np.count_nonzero(~np.isnan(average_precision))
    order = np.argsort(average_precision, kind="stable")[: min(n, n_scored)]  # NaN is last
    return [(int(rows[query]), float(average_precision[query])) for query in order]
