"""A run takes no more memory in its last epoch than in its first few."""

import gc
import resource
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from coloured_images import coloured
from orbithash.evaluation import mean_average_precision
from orbithash.networks import SmallCNN
from orbithash.training import IMAGE_PRESETS, Checkpoints, train_on_images


def megabytes_in_use() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_memory_stays_flat_over_epochs(tmp_path):
    images = coloured(tmp_path / "images", per_class=16)
    settings = replace(
        IMAGE_PRESETS["default"], epochs=14, batch_size=12, validate_every=1, patience=14
    )
    used = []
    torch.set_num_threads(1)
    train_on_images(
        images,
        SmallCNN(channels=3),
        "order-aware",
        16,
        settings,
        score=mean_average_precision,
        n_workers=1,
        after_epoch=lambda epoch: used.append(megabytes_in_use()),
        checkpoints=Checkpoints(tmp_path / "checkpoint.safetensors", every=0),
    )
    # Ten epochs read 480 views of 3 kB and write 40 checkpoints of 1.5 MB.
    assert used[-1] < used[3] + 4
