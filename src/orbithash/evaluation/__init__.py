"""How good codes are: scores of encoders or codes on a split."""

from orbithash.evaluation.encoders import (
    encode_split,
    evaluate_encoder,
    evaluate_rows,
    mean_average_precision,
)
from orbithash.evaluation.evaluate import evaluate_codes
from orbithash.metrics.scores import Scores

__all__ = [
    "Scores",
    "encode_split",
    "evaluate_codes",
    "evaluate_encoder",
    "evaluate_rows",
    "mean_average_precision",
]
