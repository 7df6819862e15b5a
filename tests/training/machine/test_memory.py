"""Batches in parts: the same gradient with less memory, and parts that fit in a limit."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from orbithash.errors import InputError
from orbithash.losses import LOSSES
from orbithash.networks import EfficientNetLite0, GoogLeNet, HashingNetwork, SmallCNN
from orbithash.training import as_method
from orbithash.training.machine import memory
from orbithash.training.machine.memory import StepCost, embed_in_parts, measure_step

SIDES = {SmallCNN: 32, GoogLeNet: 96, EfficientNetLite0: 96}
REAL = [
    pytest.param(kind, marks=pytest.mark.slow)  # seconds per loss
    for kind in (GoogLeNet, EfficientNetLite0)
]


def problem(kind, method, *, dropout=0.0, n=12):
    torch.manual_seed(0)
    backbone = kind(channels=3) if kind is SmallCNN else kind()
    network = HashingNetwork(backbone, 16, hidden=8, dropout=dropout, freeze_statistics=True)
    for weight in network.backbone.parameters():
        if weight.ndim == 4:  # large enough that activations do not vanish
            nn.init.kaiming_normal_(weight, nonlinearity="relu")
    for layer in network.backbone.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = dropout
    pixels = torch.randint(0, 256, (n, 3, SIDES[kind], SIDES[kind]), dtype=torch.uint8)
    network.eval()
    with torch.no_grad():
        network.head.fit_start(network.backbone(pixels.float()))
    loss = as_method(method).loss(n_bits=16, n_classes=4, seed=0, reduction=None)
    return network.train(), loss, pixels, torch.arange(n) % 4


class InDouble(nn.Module):
    """A network in double precision: in single, rounding moves some inputs of a ReLU across 0."""

    def __init__(self, network):
        super().__init__()
        self.network = copy.deepcopy(network).double()

    def forward(self, images):
        return self.network(images.double())


def gradients(network, loss, pixels, labels, part_size):
    torch.manual_seed(1)
    network.zero_grad()
    # A copy: some losses count their steps.
    copy.deepcopy(loss)(embed_in_parts(network, pixels, part_size), labels).backward()
    return {name: weight.grad for name, weight in network.named_parameters()}


@pytest.mark.parametrize("kind", [SmallCNN, *REAL])
@pytest.mark.parametrize("method", LOSSES)
def test_parts_give_the_gradient_of_the_whole_batch(kind, method):
    network, loss, pixels, labels = problem(kind, method)
    network, loss = InDouble(network), loss.double()
    whole = gradients(network, loss, pixels, labels, None)
    assert any(gradient is not None and gradient.abs().max() > 0 for gradient in whole.values())
    for part_size in (1, 5, 6):
        assert_near(gradients(network, loss, pixels, labels, part_size), whole, 1e-5)


def assert_near(ours, theirs, tolerance):
    for name, expected in theirs.items():
        if expected is None:  # a layer that does not affect the output
            assert ours[name] is None
            continue
        difference = (ours[name] - expected).norm()
        assert difference <= tolerance * expected.norm() + 1e-9, name


@pytest.mark.parametrize("kind", [SmallCNN, *REAL])
def test_weights_after_five_steps_in_parts_equal_those_of_whole_batches(kind):
    network, loss, pixels, labels = problem(kind, "order-aware")
    trained = []
    for part_size in (None, 5):
        copied = copy.deepcopy(network)
        optimizer = torch.optim.SGD(copied.parameters(), lr=1e-3, momentum=0.9)
        for _ in range(5):
            optimizer.zero_grad()
            loss(embed_in_parts(copied, pixels, part_size), labels).backward()
            optimizer.step()
        trained.append({name: weight.detach() for name, weight in copied.named_parameters()})
    start = dict(network.named_parameters())
    assert any(not torch.equal(start[name], weight) for name, weight in trained[0].items())
    assert_near(trained[1], trained[0], 1e-4)


def test_dropout_is_the_same_when_a_part_is_embedded_again():
    network, loss, pixels, labels = problem(SmallCNN, "triplet", dropout=0.5)
    in_parts = gradients(network, loss, pixels, labels, 5)
    torch.manual_seed(1)
    network.zero_grad()
    kept = torch.cat([network(part.float()) for part in torch.tensor_split(pixels, 3)])
    loss(kept, labels).backward()
    expected = {name: weight.grad for name, weight in network.named_parameters()}
    assert_near(in_parts, expected, 1e-5)


def test_statistics_of_batch_normalisation_stay_as_they_are():
    network, loss, pixels, labels = problem(SmallCNN, "triplet")
    before = {name: buffer.clone() for name, buffer in network.named_buffers()}
    gradients(network, loss, pixels, labels, 5)
    for name, buffer in network.named_buffers():
        assert torch.equal(buffer, before[name]), name


def test_a_part_is_as_large_as_the_limit_allows():
    cost = StepCost(
        fixed_bytes=1e9, bytes_per_image=1e8, seconds_per_image=0.3, batch_size=100, limit=2.3e9
    )
    assert (cost.part_size, cost.in_parts) == (10, True)
    assert replace(cost, n_workers=2, worker_bytes=4e8).part_size == 2
    assert cost.gigabytes == pytest.approx(2.0)
    # Forward takes a third of a step: in parts it is done twice, and validated images need it once.
    assert cost.epoch_seconds(100, 10) == pytest.approx(100 * 0.4 + 10 * 0.1)


def test_a_limit_that_holds_no_two_images_is_refused():
    network, _, _, _ = problem(SmallCNN, "triplet")
    with pytest.raises(InputError, match=r"at least .* GB, but the limit is 0\.0 GB; raise --mem"):
        measure_step(network, 32, 100, limit=0.01, n_workers=2, device="cpu").check()


def test_half_of_the_free_memory_is_the_default_limit(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 8e9)
    monkeypatch.setattr(memory, "resident_bytes", lambda: 1e9)
    network, _, _, _ = problem(SmallCNN, "triplet")
    cost = measure_step(network, 32, 100, limit=None, n_workers=2, device="cpu")
    assert cost.limit == 4e9
    assert not cost.in_parts
