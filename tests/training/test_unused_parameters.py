"""Networks with parameters that never get a gradient train in several processes too."""

import pytest
import torch
from torch import distributed, nn

from orbithash.training import Processes


class WithUnused(nn.Module):
    """As models that were trained on masked images are, when none is masked."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.mask = nn.Linear(4, 2), nn.Parameter(torch.zeros(4))

    def forward(self, inputs):
        return self.layer(inputs)


@pytest.fixture
def group(tmp_path):
    """A group of one process: what DistributedDataParallel asks for needs no second."""
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def test_they_are_left_as_they_are(group):
    network, processes = WithUnused(), Processes(0, 2)
    processes.leave_unused(network, torch.zeros(1, 4))
    assert [weight.requires_grad for weight in network.parameters()] == [False, True, True]
    assert all(weight.grad is None for weight in network.parameters())
    parallel = processes.parallel(network)
    for _ in range(2):  # the second step is where the first one's gradients are waited for
        parallel(torch.rand(3, 4)).sum().backward()


def test_one_process_alone_changes_nothing():
    network = WithUnused()
    Processes().leave_unused(network, torch.zeros(1, 4))
    assert all(weight.requires_grad for weight in network.parameters())
