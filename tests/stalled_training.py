"""A process that takes one batch of its workers and then stalls."""

import multiprocessing
import time
from pathlib import Path

import numpy as np

from coloured_images import coloured


def read_large_view(image: Path, *, rng: np.random.Generator) -> np.ndarray:
    return np.zeros((512, 512, 3), np.uint8)


def take_one_batch_and_stall(folder: Path, start_method: str) -> None:
    multiprocessing.set_start_method(start_method, force=True)
    from orbithash.data import ShuffledBatches
    from orbithash.training.batches import ImageBatches, ImageReader

    images = coloured(folder / "images")
    rows = np.arange(len(images))
    reader = ImageReader(images, rows, images.labels, read_large_view, seed=0)
    source = ImageBatches(reader, ShuffledBatches(len(images), 8), epochs=9, n_workers=2)
    next(iter(source(0)))
    (folder / "taken").touch()
    time.sleep(600)
