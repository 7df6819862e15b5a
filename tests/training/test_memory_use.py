"""A run takes no more memory in its last epoch than in its first few."""

import json
from pathlib import Path

import pytest

from clean_processes import call
from measured_training import train_and_measure
from process_memory import bytes_of_tensors, megabytes_in_use

TOLERANCE = 16.0  # megabytes


def test_tensors_take_no_more_memory_over_epochs(tmp_path):
    used = measured(tmp_path, bytes_of_tensors, epochs=3)
    assert used[-1] == used[1] > 0


@pytest.mark.slow  # what the system and its libraries hold varies with the machine
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's /proc")
def test_memory_stays_flat_over_epochs(tmp_path):
    used = measured(tmp_path, megabytes_in_use, epochs=14)
    # Eight epochs read 350 images, 39 MB, make 155 MB of inputs of them, and write 30 checkpoints.
    assert used[-1] < used[5] + TOLERANCE


def measured(folder, measure, *, epochs):
    # On its own: what other tests have left would be counted, and come and go meanwhile.
    process = call(train_and_measure, folder, measure, epochs)
    process.join()
    used = json.loads((folder / "used.json").read_text())
    assert len(used) == epochs
    return used
