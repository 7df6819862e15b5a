"""Training networks with any loss."""

from orbithash.training.batches import Batch, Batcher, BatchSource, TensorBatches, only_look
from orbithash.training.checkpoint import Checkpoints
from orbithash.training.distributed import ALONE, Processes, joined_processes
from orbithash.training.environment import Interrupted, interruption, seeded
from orbithash.training.history import Epoch, Trained, log_to, read_log
from orbithash.training.loop import train
from orbithash.training.on_features import train_on_features
from orbithash.training.on_images import train_on_images
from orbithash.training.settings import IMAGE_PRESETS, PRESETS, TrainingSettings

__all__ = [
    "ALONE",
    "IMAGE_PRESETS",
    "PRESETS",
    "Batch",
    "BatchSource",
    "Batcher",
    "Checkpoints",
    "Epoch",
    "Interrupted",
    "Processes",
    "TensorBatches",
    "Trained",
    "TrainingSettings",
    "interruption",
    "joined_processes",
    "log_to",
    "only_look",
    "read_log",
    "seeded",
    "train",
    "train_on_features",
    "train_on_images",
]
