"""The memory that fine-tuning takes, and batches in parts so that it fits in a limit.

A part is embedded without keeping its activations, which are computed again in the backward pass,
one part at a time. The loss still sees the whole batch, and the gradient is the same.
"""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from orbithash.errors import InputError

GIGABYTE = 1e9
# Weights, gradients, two moments and the best epoch; all of them twice while a checkpoint is saved.
COPIES_OF_WEIGHTS = 10
# Beside the activations that are kept: gradients of the largest ones, and buffers of convolutions.
TRANSIENT = 1.2
PROBE = 4  # images
MARGIN = 0.9  # share of the limit that is used
WORKER_BYTES = 750e6  # of a process that reads images: what it does not share with its parent


@dataclass(frozen=True)
class StepCost:
    """What one training step costs."""

    fixed_bytes: float  # of this process, the weights and a batch
    bytes_per_image: float  # of a part, while its gradient is computed
    seconds_per_image: float  # forward and backward
    batch_size: int
    limit: float  # bytes
    worker_bytes: float = 0.0  # of a process that reads images, with its batches
    n_workers: int = 0

    @property
    def part_size(self) -> int:
        """The number of images of a batch that fit in the limit at once."""
        free = MARGIN * self.limit - self.taken
        return min(self.batch_size, int(free / self.bytes_per_image))

    @property
    def taken(self) -> float:
        """The memory besides that of a part."""
        return self.fixed_bytes + self.n_workers * self.worker_bytes

    @property
    def in_parts(self) -> bool:
        return self.part_size < self.batch_size

    @property
    def gigabytes(self) -> float:
        """The memory that training will take."""
        return (self.taken + self.part_size * self.bytes_per_image) / GIGABYTE

    def check(self) -> None:
        """Raise if not even two images fit in the limit."""
        if self.part_size < 2:
            least = (self.taken + 2 * self.bytes_per_image) / MARGIN / GIGABYTE
            raise InputError(
                f"training this network takes at least {least:.1f} GB, but the limit is "
                f"{self.limit / GIGABYTE:.1f} GB; raise --memory-limit, or train with --tune head"
            )

    def epoch_seconds(self, n_train: int, n_validated: int) -> float:
        """Return the time of an epoch; validated images are only embedded.

        A backward pass takes about twice as long as a forward pass, and parts are embedded twice.
        """
        forward = self.seconds_per_image / 3
        return n_train * (self.seconds_per_image + forward * self.in_parts) + n_validated * forward


def embed_in_parts(
    network: nn.Module,
    inputs: Shaped[Tensor, "n ..."],
    part_size: int | None,
    n_largest: int | None = None,
) -> Float[Tensor, "n bits"]:
    """Embed a batch, at most `part_size` images at a time; None: all at once.

    `n_largest` is the largest share of the batch that a process has: all must embed the same number
    of parts.
    """
    n_largest = n_largest or len(inputs)
    if part_size is None or part_size >= n_largest:
        return as_embeddings(network, inputs)
    # A re-entrant checkpoint keeps nothing of a part but its pixels. It needs an input with a
    # gradient, and one backward pass per part, which DistributedDataParallel does not allow.
    reentrant = not isinstance(network, DistributedDataParallel)
    needs_gradient = torch.zeros(1, device=inputs.device, requires_grad=True)
    # The random state of each part is kept, so dropout is the same when it is embedded again.
    return torch.cat(
        [
            checkpoint(embed_part, network, part, needs_gradient, use_reentrant=reentrant)
            for part in torch.tensor_split(inputs, -(-n_largest // part_size))
        ]
    )


def embed_part(
    network: nn.Module, inputs: Shaped[Tensor, "n ..."], needs_gradient: Shaped[Tensor, " 1"]
) -> Float[Tensor, "n bits"]:
    return as_embeddings(network, inputs)


def as_embeddings(network: nn.Module, inputs: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n bits"]:
    # Pixels become floats only here: a batch of them would take four times the memory.
    embeddings: Tensor = network(inputs.float())
    return embeddings


def measure_step(
    network: nn.Module,
    side: int,
    batch_size: int,
    *,
    limit: float | None,
    n_workers: int,
    device: str,
    n_processes: int = 1,
) -> StepCost:
    """Measure a step on a few random images.

    The limit is in gigabytes, by default half of the memory that is free; processes share it.
    """
    free = free_bytes(device)
    resident = resident_bytes()  # before the trial, whose memory is used again
    pixels = torch.randint(0, 256, (PROBE, 3, side, side), dtype=torch.uint8, device=device)
    seconds = min(time_step(network, pixels) for _ in range(2))
    kept = kept_bytes(network, pixels) / PROBE
    weights = COPIES_OF_WEIGHTS * sum(parameter.nbytes for parameter in network.parameters())
    batch_bytes = batch_size * side * side * 3
    on_cpu = device == "cpu"
    return StepCost(
        fixed_bytes=weights + (resident + 2 * batch_bytes if on_cpu else 0),
        bytes_per_image=(1 + TRANSIENT) * kept,
        seconds_per_image=seconds / PROBE,
        batch_size=batch_size,
        limit=(free / 2 if limit is None else limit * GIGABYTE) / (n_processes if on_cpu else 1),
        # Each worker has two batches ready, and holds one more while it sends it.
        worker_bytes=WORKER_BYTES + 3 * batch_bytes if on_cpu else 0,
        n_workers=n_workers,
    )


def time_step(network: nn.Module, pixels: Shaped[Tensor, "n 3 side side"]) -> float:
    """Return the seconds of a forward and a backward pass; gradients are cleared afterwards."""
    started = time.perf_counter()
    as_embeddings(network, pixels).sum().backward()  # type: ignore[no-untyped-call]
    for parameter in network.parameters():
        if parameter.grad is not None:
            parameter.grad.sum().item()  # waits for a GPU
            parameter.grad = None
    return time.perf_counter() - started


def kept_bytes(network: nn.Module, pixels: Shaped[Tensor, "n 3 side side"]) -> int:
    """Return the size of all tensors that a forward pass keeps for the backward pass."""
    ours = {parameter.data_ptr() for parameter in network.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if tensor.data_ptr() not in ours:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        embeddings = as_embeddings(network, pixels)
    del embeddings
    return sum(kept.values())


def free_bytes(device: str = "cpu") -> float:
    """Return the memory that is free: of the machine, of its container, or of the GPU."""
    if torch.device(device).type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    free = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(OSError, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        free = 1024.0 * int(fields["MemAvailable"].split()[0])
    with suppress(OSError, ValueError):  # the file says "max" where there is no limit
        group = Path("/sys/fs/cgroup")
        allowed = int((group / "memory.max").read_text())
        free = min(free, allowed - int((group / "memory.current").read_text()))
    return free


def resident_bytes() -> float:
    """Return the memory that this process takes now; 0 where it is not known."""
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return float(pages * os.sysconf("SC_PAGE_SIZE"))
    return 0.0
