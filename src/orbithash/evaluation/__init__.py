"""How good codes are: scores of an encoder on a source, and of bare codes."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from orbithash.metrics.scores import Scores
from orbithash.metrics.scoring import PRECISION_AT, evaluate_codes

if TYPE_CHECKING:  # scoring codes must not load torch
    from orbithash.data import ImageSource, LabelledFeatures
    from orbithash.encoders import Encoded, Encoder, Progress

__all__ = ["Scores", "encode_split", "evaluate", "evaluate_codes", "evaluate_rows"]

logger = logging.getLogger(__name__)


def evaluate(
    encoder: "Encoder", source: Any, *, progress: "bool | Progress | None" = None
) -> Scores:
    """Search for every query in the database, and score the rankings.

    A source without a split is scored row by row: each is a query against all others. Unreadable
    images are left out. A progress bar is shown by default in a terminal.
    """
    from orbithash.data import open_source
    from orbithash.encoders.progress import reporting

    data = open_source(source)
    with reporting(progress) as report:
        encoded = encode_split(encoder, data, progress=report)
    return evaluate_rows(encoded, data)


def encode_split(
    encoder: "Encoder",
    data: "ImageSource | LabelledFeatures",
    *,
    progress: "Progress" = lambda done, total: None,
) -> "Encoded":
    """Encode the queries and the database of the split, each row once; without one, all rows."""
    from orbithash.encoders import encode_source

    split = data.split
    rows = np.union1d(split.query, split.database) if split.has_queries else np.arange(len(data))
    return encode_source(encoder, data, rows=rows, progress=progress)


def evaluate_rows(
    encoded: "Encoded",
    data: "ImageSource | LabelledFeatures",
    *,
    precision_at: Sequence[int] = PRECISION_AT,
) -> Scores:
    """Score the codes of rows: every query of the split against its whole database."""
    codes, labels, split = encoded.codes, data.labels[encoded.rows], data.split
    n_bits = encoded.embeddings.shape[1]
    if not split.has_queries:
        return evaluate_codes(
            codes,
            codes,
            labels,
            labels,
            n_bits=n_bits,
            precision_at=precision_at,
            leave_one_out=True,
        )
    if both := len(np.intersect1d(split.query, split.database)):
        logger.warning("%d queries are also in the database and find themselves first", both)
    is_query, is_database = (np.isin(encoded.rows, part) for part in (split.query, split.database))
    return evaluate_codes(
        codes[is_query],
        codes[is_database],
        labels[is_query],
        labels[is_database],
        n_bits=n_bits,
        precision_at=precision_at,
    )
