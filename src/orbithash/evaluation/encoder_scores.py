"""Scores of an encoder on a split, and MAP alone."""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from orbithash.metrics.scores import Scores
from orbithash.metrics.scoring import PRECISION_AT, evaluate_codes

if TYPE_CHECKING:  # scoring codes must not load torch
    from orbithash.data import ImageFiles, LabelledFeatures
    from orbithash.encoders import FeatureEncoder, ImageEncoder
    from orbithash.encoders.encoding import EncodedRows


logger = logging.getLogger(__name__)


def evaluate_encoder(
    encoder: "FeatureEncoder | ImageEncoder",
    data: "ImageFiles | LabelledFeatures",
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Scores:
    """Every query of the split against its whole database; what cannot be read is left out."""
    return evaluate_rows(
        encode_split(encoder, data, progress=progress), data, n_bits=encoder.n_bits
    )


def encode_split(
    encoder: "FeatureEncoder | ImageEncoder",
    data: "ImageFiles | LabelledFeatures",
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> "EncodedRows":
    """The codes of the split's queries and database, each row once."""
    from orbithash.encoders.encoding import encode_source  # loads torch

    needed = np.union1d(data.split.query, data.split.database)
    return encode_source(encoder, data, rows=needed, progress=progress)


def evaluate_rows(
    encoded: "EncodedRows",
    data: "ImageFiles | LabelledFeatures",
    *,
    n_bits: int,
    precision_at: Sequence[int] = PRECISION_AT,
) -> Scores:
    """Score codes of rows of the data: every query of the split against its whole database."""
    if both := len(np.intersect1d(data.split.query, data.split.database)):
        logger.warning("%d queries are in the database too and find themselves first", both)
    asking, answering = (
        np.isin(encoded.rows, part) for part in (data.split.query, data.split.database)
    )
    labels = data.labels[encoded.rows]
    return evaluate_codes(
        encoded.codes[asking],
        encoded.codes[answering],
        labels[asking],
        labels[answering],
        n_bits=n_bits,
        precision_at=precision_at,
    )


def mean_average_precision(
    query_codes: ArrayLike,
    database_codes: ArrayLike,
    query_labels: ArrayLike,
    database_labels: ArrayLike,
    *,
    n_bits: int,
) -> float:
    """Expected MAP alone: what validation asks for."""
    return evaluate_codes(
        query_codes, database_codes, query_labels, database_labels, n_bits=n_bits
    ).map
