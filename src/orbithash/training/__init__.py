"""Training networks with any loss, and fitting hashers."""

from orbithash.training.batches import (
    Batch,
    Batcher,
    BatchSource,
    InputViews,
    TensorBatches,
    single_views,
)
from orbithash.training.checkpoint import Checkpoints
from orbithash.training.fit import train
from orbithash.training.hooks import Hooks
from orbithash.training.loop import train_network
from orbithash.training.machine.distributed import SINGLE_PROCESS, Processes, joined_processes
from orbithash.training.machine.environment import Interrupted, interruption, seeded
from orbithash.training.methods import Method, as_method
from orbithash.training.on_arrays import train_on_arrays
from orbithash.training.on_images import train_on_images
from orbithash.training.settings import IMAGE_PRESETS, PRESETS, TrainingSettings

__all__ = [
    "IMAGE_PRESETS",
    "PRESETS",
    "SINGLE_PROCESS",
    "Batch",
    "BatchSource",
    "Batcher",
    "Checkpoints",
    "Hooks",
    "InputViews",
    "Interrupted",
    "Method",
    "Processes",
    "TensorBatches",
    "TrainingSettings",
    "as_method",
    "interruption",
    "joined_processes",
    "seeded",
    "single_views",
    "train",
    "train_network",
    "train_on_arrays",
    "train_on_images",
]
