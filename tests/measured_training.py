"""A run that notes how much memory it has in use, to be made in a process of its own."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch.nn.functional import avg_pool2d

from coloured_images import coloured
from orbithash.networks import SmallCNN, View
from orbithash.training import IMAGE_PRESETS, Checkpoints, Hooks, as_method, train_on_images


class LargeViews(SmallCNN):
    """192 pixels a side, of which it makes 32: an image is 0.1 MB when read, 0.4 MB as an input."""

    view = View(resize=192, crop=192)

    def forward(self, images):
        return super().forward(avg_pool2d(images, 6))


def train_and_measure(folder: Path, measure: Callable[[], float], epochs: int) -> None:
    """Train, and write what is in use after each epoch."""
    torch.set_num_threads(1)
    settings = replace(
        IMAGE_PRESETS["default"], epochs=epochs, batch_size=12, validate_every=1, patience=epochs
    )
    used = []
    train_on_images(
        coloured(folder / "images", per_class=16),
        LargeViews(channels=3),
        as_method("order-aware"),
        16,
        settings,
        n_workers=1,
        hooks=Hooks(after_epoch=lambda epoch: used.append(measure())),
        checkpoints=Checkpoints(folder / "checkpoint.safetensors", every=0),
    )
    (folder / "used.json").write_text(json.dumps(used))
