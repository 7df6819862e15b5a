"""A run takes no more memory in its last epoch than in its first few."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.functional import avg_pool2d

from coloured_images import coloured
from orbithash.evaluation import mean_average_precision
from orbithash.networks import SmallCNN, View
from orbithash.training import IMAGE_PRESETS, Checkpoints, train_on_images
from process_memory import megabytes_in_use

TOLERANCE = 16.0  # megabytes


class LargeViews(SmallCNN):
    """192 pixels a side, of which it makes 32: an image is 0.1 MB when read, 0.4 MB as an input."""

    view = View(resize=192, crop=192)

    def forward(self, images):
        return super().forward(avg_pool2d(images, 6))


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's /proc")
def test_memory_stays_flat_over_epochs(tmp_path, one_thread):
    images = coloured(tmp_path / "images", per_class=16)
    settings = replace(
        IMAGE_PRESETS["default"], epochs=14, batch_size=12, validate_every=1, patience=14
    )
    used = []
    train_on_images(
        images,
        LargeViews(channels=3),
        "order-aware",
        16,
        settings,
        score=mean_average_precision,
        n_workers=1,
        after_epoch=lambda epoch: used.append(megabytes_in_use()),
        checkpoints=Checkpoints(tmp_path / "checkpoint.safetensors", every=0),
    )
    # Eight epochs read 350 images, 39 MB, make 155 MB of inputs of them, and write 30 checkpoints.
    assert used[-1] < used[5] + TOLERANCE
