"""How good codes are: scores of encoders, and of bare codes."""

from orbithash.evaluation.encoder_scores import encode_split, evaluate, evaluate_rows
from orbithash.metrics.scores import Scores
from orbithash.metrics.scoring import evaluate_codes

__all__ = ["Scores", "encode_split", "evaluate", "evaluate_codes", "evaluate_rows"]
