"""Training networks with any loss."""

from orbithash.training.loop import Batcher, Epoch, train
from orbithash.training.settings import TrainingSettings

__all__ = ["Batcher", "Epoch", "TrainingSettings", "train"]
