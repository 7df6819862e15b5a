"""How good codes are: scores of encoders or codes on a split."""

from orbithash.evaluation.encoder_scores import (
    encode_split,
    evaluate_encoder,
    evaluate_rows,
    mean_average_precision,
)
from orbithash.metrics.scores import Scores
from orbithash.metrics.scoring import evaluate_codes

__all__ = [
    "Scores",
    "encode_split",
    "evaluate_codes",
    "evaluate_encoder",
    "evaluate_rows",
    "mean_average_precision",
]
