import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import distributed, nn

from clean_processes import call, start, together
from coloured_images import coloured
from feature_files import write_clouds
from orbithash.training import Processes
from shared_batches import three_steps, two_epochs_on_images


def test_shares_are_nearly_equal_and_cover_the_batch():
    for n, count in ((9, 2), (8, 3), (2, 4)):
        shares = [np.arange(n)[Processes(rank, count).share(n)] for rank in range(count)]
        np.testing.assert_array_equal(np.concatenate(shares), np.arange(n))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize(
    "labels_per_image",
    [
        "one",
        pytest.param("several", marks=pytest.mark.slow),
        pytest.param("one, and a teacher", marks=pytest.mark.slow),
    ],
)
def test_two_processes_have_the_loss_and_gradients_of_one_with_the_whole_batch(
    labels_per_image, tmp_path
):
    alone, first, second = alone_and_together(three_steps, labels_per_image, tmp_path)
    assert len(alone["losses"]) == 3
    assert np.abs(alone["gradient of 0.weight"]).max() > 1e-4
    assert_close(first, alone, rtol=1e-5, atol=1e-6)
    assert_close(second, first, rtol=0, atol=0)


@pytest.mark.slow
def test_two_processes_fine_tune_on_images_as_one_does(tmp_path):
    images = coloured(tmp_path / "images", per_class=12)
    alone, first, second = alone_and_together(two_epochs_on_images, (images, False), tmp_path)
    assert_close(first, alone, rtol=1e-4, atol=1e-5)
    assert_close(second, first, rtol=0, atol=0)


@pytest.mark.slow
def test_two_processes_validate_the_same_network_where_batches_are_normalised(tmp_path):
    images = coloured(tmp_path / "images", per_class=12)
    _, first, second = alone_and_together(two_epochs_on_images, (images, True), tmp_path)
    assert_close(second, first, rtol=0, atol=0)


def assert_close(arrays, expected, *, rtol, atol):
    assert arrays.keys() == expected.keys()
    for name, array in arrays.items():
        np.testing.assert_allclose(array, expected[name], rtol=rtol, atol=atol, err_msg=name)


def alone_and_together(function, given, folder):
    """What one process writes, and each of two that share the work."""
    for count in (1, 2):
        with together(count) as environments:
            processes = [
                call(function, environment, given, folder / f"{count}.{rank}.safetensors")
                for rank, environment in enumerate(environments)
            ]
            for process in processes:
                process.join()
        assert [process.exitcode for process in processes] == [0] * count
    return [load_file(folder / f"{name}.safetensors") for name in ("1.0", "2.0", "2.1")]


def test_the_command_trains_with_two_processes_as_with_one(tmp_path):
    source = write_clouds(tmp_path / "clouds.npz")
    for count in (1, 2):
        # A linear head: what dropout draws is each process's own.
        command = [
            *("train", str(source), "--bits", "8", "--preset", "paper", "--epochs", "3"),
            *(
                "--batch-size",
                "20",
                "--validate-every",
                "1",
                "--out",
                str(tmp_path / f"run{count}"),
            ),
        ]
        output = tmp_path / f"output{count}.txt"
        with together(count) as environments:
            processes = [start(command, output=output, environment=each) for each in environments]
            for process in processes:
                process.join()
        assert [process.exitcode for process in processes] == [0] * count, output.read_text()
        assert output.read_text().count("Next, score it") == 1
    one, two = (load_file(tmp_path / f"run{count}" / "model.safetensors") for count in (1, 2))
    assert_close(two, one, rtol=1e-4, atol=1e-6)
    logs = [(tmp_path / f"run{count}" / "log.jsonl").read_text().splitlines() for count in (1, 2)]
    for line, other in zip(*logs, strict=True):
        assert json.loads(line)["loss"] == pytest.approx(json.loads(other)["loss"], rel=1e-5)


def test_all_processes_end_with_one_line_where_the_first_may_not_write(tmp_path):
    source, out, output = write_clouds(tmp_path / "clouds.npz"), tmp_path / "run", tmp_path / "said"
    out.mkdir()
    (out / "thesis.txt").touch()
    command = ["train", str(source), "--bits", "8", "--out", str(out)]
    with together(2) as environments:
        processes = [start(command, output=output, environment=each) for each in environments]
        for process in processes:
            process.join()
    assert [process.exitcode for process in processes] == [2, 2]
    assert "Traceback" not in output.read_text()
    assert f"{out} exists" in output.read_text()


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


def test_parameters_without_a_gradient_are_left_as_they_are(group):
    network, processes = WithUnused(), Processes(0, 2)
    processes.freeze_unused(network, torch.zeros(1, 4))
    assert [weight.requires_grad for weight in network.parameters()] == [False, True, True]
    assert all(weight.grad is None for weight in network.parameters())
    parallel = processes.parallel(network)
    for _ in range(2):  # the second step is where the first one's gradients are waited for
        parallel(torch.rand(3, 4)).sum().backward()


def test_one_process_alone_leaves_parameters_without_a_gradient_to_train():
    network = WithUnused()
    Processes().freeze_unused(network, torch.zeros(1, 4))
    assert all(weight.requires_grad for weight in network.parameters())
