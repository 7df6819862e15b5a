"""Training networks with any loss."""

from orbithash.training.log import log_to, read_log
from orbithash.training.loop import Batcher, Epoch, train
from orbithash.training.on_features import Trained, train_on_features
from orbithash.training.seeding import seeded
from orbithash.training.settings import PRESETS, TrainingSettings

__all__ = [
    "PRESETS",
    "Batcher",
    "Epoch",
    "Trained",
    "TrainingSettings",
    "log_to",
    "read_log",
    "seeded",
    "train",
    "train_on_features",
]
