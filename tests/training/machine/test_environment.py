from contextlib import nullcontext

import pytest
import torch

from orbithash.training import Processes, seeded


@pytest.fixture
def forked(monkeypatch):
    """The devices whose generators are put back afterwards, on a machine with two."""
    devices = []

    def fork_rng(devices_given=(), **options):
        devices.extend(options.get("devices", devices_given))
        return nullcontext()

    monkeypatch.setattr(torch.random, "fork_rng", fork_rng)
    monkeypatch.setattr(torch, "manual_seed", lambda seed: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    return devices


def test_a_seed_leaves_every_devices_generator_as_it_was(forked):
    with seeded(0):
        assert forked == [0, 1]


def test_drawing_together_leaves_the_generator_of_this_process_as_it_was(forked):
    with Processes(1, 2).same_draws(7):
        assert forked == [1]
