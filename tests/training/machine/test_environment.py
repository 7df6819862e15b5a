import signal
from contextlib import nullcontext

import pytest
import torch

from orbithash.training import Processes, interruption, seeded


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


def test_a_signal_stops_and_a_second_ctrl_c_finishes(caplog):
    with interruption() as signals:
        assert not signals.stopping()
        signal.raise_signal(signal.SIGINT)
        assert signals.stopping()
        assert "press Ctrl-C again to keep the best epoch so far" in caplog.text
        signal.raise_signal(signal.SIGINT)
        assert signals.finishing()
        assert signals.stopping()  # if there is no epoch to keep
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_signal_that_came_too_late_is_raised_again():
    with pytest.raises(KeyboardInterrupt), interruption():
        signal.raise_signal(signal.SIGINT)
