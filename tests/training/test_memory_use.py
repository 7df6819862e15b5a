"""A run takes no more memory in its last epoch than in its first few."""

import json
from pathlib import Path

import pytest

from clean_processes import call
from measured_training import train_and_measure

TOLERANCE = 16.0  # megabytes


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's /proc")
def test_memory_stays_flat_over_epochs(tmp_path):
    # On its own: what other tests have left would be counted, and come and go meanwhile.
    process = call(train_and_measure, tmp_path)
    process.join()
    used = json.loads((tmp_path / "used.json").read_text())
    # Eight epochs read 350 images, 39 MB, make 155 MB of inputs of them, and write 30 checkpoints.
    assert len(used) == 14
    assert used[-1] < used[5] + TOLERANCE
