"""Scores of an encoder on a split, and MAP alone."""

from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from orbithash.evaluation.evaluate import evaluate_codes
from orbithash.metrics.scores import Scores

if TYPE_CHECKING:  # scoring codes must not load torch
    from orbithash.data import LabelledFeatures
    from orbithash.encoders import FeatureEncoder


def evaluate_encoder(encoder: "FeatureEncoder", data: "LabelledFeatures") -> Scores:
    """Every query of the split against its whole database."""
    codes = encoder.encode(data.features)
    asking, answering = data.split.query, data.split.database
    return evaluate_codes(
        codes[asking],
        codes[answering],
        data.labels[asking],
        data.labels[answering],
        n_bits=encoder.n_bits,
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
