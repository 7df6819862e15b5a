"""How good codes are: scores of encoders or codes on a split."""

from orbithash.evaluation.encoders import evaluate_encoder, mean_average_precision
from orbithash.evaluation.evaluate import evaluate_codes
from orbithash.metrics.scores import Scores

__all__ = ["Scores", "evaluate_codes", "evaluate_encoder", "mean_average_precision"]
