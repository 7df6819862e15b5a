"""Saving and taking up a state, without processes: every place to stop is tried."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from orbithash.data import ShuffledBatches
from orbithash.errors import InputError
from orbithash.losses import LOSSES
from orbithash.training import (
    Checkpoints,
    Hooks,
    Interrupted,
    TensorBatches,
    TrainingSettings,
    seeded,
    single_views,
    train_network,
)
from orbithash.training.state import BestEpoch, EpochTotals, Memory, TrainingState

SETTINGS = TrainingSettings(epochs=3, batch_size=8, learning_rate=0.01, memory=10, validate_every=2)


class Run:
    """A small run of all that has a state: dropout, normalisation, memory, a best epoch."""

    def __init__(self, settings=SETTINGS, method="order-aware"):
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.rand(24, 6, 4, 4, generator=generator)
        self.labels = torch.arange(24) % 3
        self.settings, self.method = settings, method
        self.asked = 0
        self.epochs = []

    def go(self, checkpoints=None, *, stop_at=None):
        def stopping():
            self.asked += 1
            return self.asked == stop_at

        def validate():
            if stopping():
                raise Interrupted
            return float(network[0].weight.detach().sum())

        with seeded(1):
            network = nn.Sequential(
                nn.Conv2d(6, 5, 3),
                nn.BatchNorm2d(5),
                nn.Dropout(0.5),
                nn.Flatten(),
                nn.Linear(20, 8),
                nn.Sigmoid(),
            ).to(memory_format=torch.channels_last)
            self.history = train_network(
                network,
                LOSSES[self.method](),
                TensorBatches(single_views(self.inputs), self.labels, ShuffledBatches(24, 8)),
                self.settings,
                validate=validate,
                hooks=Hooks(after_epoch=self.epochs.append, stopping=stopping),
                checkpoints=checkpoints,
            )
        return network


def assert_same(network, other):
    for (name, left), right in zip(
        network.state_dict().items(), other.state_dict().values(), strict=True
    ):
        assert torch.equal(left, right), name


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_stopped_anywhere_a_run_goes_on_as_if_it_had_not(optimizer, tmp_path):
    settings = replace(SETTINGS, optimizer=optimizer)
    undisturbed = Run(settings)
    expected = undisturbed.go()
    for stop_at in range(1, undisturbed.asked + 1):
        file = tmp_path / f"{stop_at}.safetensors"
        with pytest.raises(Interrupted):
            Run(settings).go(Checkpoints(file), stop_at=stop_at)
        again = Run(settings)
        assert_same(again.go(Checkpoints(file)), expected)
        assert [replace(epoch, seconds=0) for epoch in again.history] == [
            replace(epoch, seconds=0) for epoch in undisturbed.history
        ]
        assert again.epochs == again.history  # whoever watches is told of the earlier ones too


def test_a_loss_with_a_state_of_its_own_goes_on_with_it(tmp_path):
    settings = replace(SETTINGS, memory=0)
    expected = Run(settings, "hashnet").go()
    with pytest.raises(Interrupted):
        Run(settings, "hashnet").go(Checkpoints(tmp_path / "c"), stop_at=5)
    assert_same(Run(settings, "hashnet").go(Checkpoints(tmp_path / "c")), expected)


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    checkpoints = Checkpoints(tmp_path / "c")
    with pytest.raises(Interrupted):
        Run().go(checkpoints.for_run({"seed": 1, "bits": 8}), stop_at=2)
    with pytest.raises(InputError, match="was started with other seed; use the same"):
        Run().go(checkpoints.for_run({"seed": 2, "bits": 8}))


def test_a_damaged_checkpoint_is_said_to_be_one(tmp_path):
    (tmp_path / "c").write_bytes(b"\x00" * 100)
    with pytest.raises(InputError, match="cannot read the checkpoint"):
        Run().go(Checkpoints(tmp_path / "c"))


def test_a_flipped_bit_anywhere_in_a_checkpoint_is_noticed(tmp_path):
    file = tmp_path / "c"
    checkpoints = Checkpoints(file)
    with pytest.raises(Interrupted):
        Run().go(checkpoints, stop_at=3)
    content = file.read_bytes()
    expected = Run().go(checkpoints)
    file.write_bytes(content)
    for place in np.random.default_rng(0).integers(0, 8 * len(content), 60).tolist():
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        file.write_bytes(damaged)
        try:
            state = Run().go(checkpoints)
        except InputError:
            continue
        assert_same(state, expected)  # the bit was of a blank, or of an unused name


def test_a_checkpoint_of_a_version_without_checksums_is_restored(tmp_path):
    file = tmp_path / "c"
    with pytest.raises(Interrupted):
        Run().go(Checkpoints(file), stop_at=3)
    with safe_open(file, framework="pt") as opened:
        header = {"orbithash": opened.metadata()["orbithash"]}
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    save_file(tensors, file, metadata=header)
    assert_same(Run().go(Checkpoints(file)), Run().go())


def test_checkpoints_come_as_often_as_asked_for_and_at_the_end(tmp_path, monkeypatch):
    saved = []
    save = Checkpoints.save
    monkeypatch.setattr(
        Checkpoints, "save", lambda self, state: (saved.append(1), save(self, state))
    )
    Run().go(Checkpoints(tmp_path / "seldom", every=3600))
    assert len(saved) == 1
    Run().go(Checkpoints(tmp_path / "often", every=0))
    assert len(saved) > 9  # after every step, every epoch and at the end
    assert sorted(path.name for path in tmp_path.iterdir()) == ["often", "seldom"]


def test_a_run_that_ended_is_taken_up_as_it_was(tmp_path):
    checkpoints = Checkpoints(tmp_path / "c", every=3600)
    expected = Run().go(checkpoints)
    again = Run()
    assert_same(again.go(checkpoints), expected)
    assert again.asked == 0  # no step, no validation


@pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter")
def test_what_was_saved_on_one_device_is_taken_up_on_another():
    totals, memory = EpochTotals(), Memory(4)
    totals.add(nn.Identity(), torch.tensor(1.0), torch.rand(3, 2))
    memory.add(torch.rand(3, 2), torch.arange(3))
    here, there = (state_on(device) for device in ("cpu", "meta"))
    here.memory, here.totals = memory, totals
    there.restore(here.tensors(), here.values())
    assert there.memory.embeddings.device.type == there.memory.labels.device.type == "meta"
    assert there.totals.ones.device.type == "cpu"


def state_on(device):
    network = nn.Linear(4, 2, device=device)
    optimizer = torch.optim.SGD(network.parameters())
    best = BestEpoch(network, patience=1)
    return TrainingState(network, nn.Identity(), optimizer, Memory(4), best)


def test_a_state_of_other_layers_is_refused_in_one_line(tmp_path):
    checkpoints = Checkpoints(tmp_path / "c.safetensors", every=0)
    network = nn.Linear(4, 8)
    checkpoints.save(
        TrainingState(
            network,
            LOSSES["triplet"](),
            torch.optim.AdamW(network.parameters()),
            Memory(10),
            BestEpoch(network, patience=3),
        )
    )
    with pytest.raises(InputError, match="started by another version") as refused:
        Run().go(checkpoints)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"orbithash": "[]"},
        {"orbithash": "{}"},
        {"orbithash": '{"images": {}}'},  # of a model file
        {"orbithash": '{"made_with": 3, "values": 4}'},
        {"orbithash": '{"made_with": "{}", "values": []}'},
        {"orbithash": '{"made_with": "{}", "values": {"best": 1, "history": 2}}'},
    ],
    ids=str,
)
def test_a_checkpoint_of_another_kind_is_one_clear_error(header, tmp_path):
    file = tmp_path / "checkpoint.safetensors"
    Run().go(Checkpoints(file, every=0))
    save_file(load_file(file), file, metadata=header)
    with pytest.raises(InputError, match="start again with --force instead of --resume"):
        Run().go(Checkpoints(file))
