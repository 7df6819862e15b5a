"""Speed of the order-aware loss, forward and backward, compared with peers in the same run.

64 bits, 20 classes, all triplets of the batch. The peers are pytorch-metric-learning's plain
triplet loss on all triplets, without weights, and the distance matrix with its argsort, the minimum
that any ranking loss must compute.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # waiting threads should sleep

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.losses import TripletMarginLoss

from measure import at_least, at_most, best
from orbithash.losses import OrderAwareTripletLoss

BITS, CLASSES, MARGIN = 64, 20, 8.0
MEMORY_BAR = 1024  # MiB


def main() -> int:
    if sys.argv[1:] == ["memory"]:
        print(peak_memory_of_one_step(4096))
        return 0
    print(f"loss, forward + backward, {torch.get_num_threads()} threads")
    ours = OrderAwareTripletLoss(margin=MARGIN)
    peer = TripletMarginLoss(
        margin=MARGIN, distance=LpDistance(normalize_embeddings=False, power=2)
    )
    step(ours, 64)()  # compile the kernels, or load them from the cache

    small, small_peer = best(step(ours, 100), step(peer, 100), repeats=30)
    middle, middle_peer = best(step(ours, 1024), step(peer, 1024), repeats=3)
    again, sorting = best(step(ours, 1024), distances_and_argsort(1024), repeats=10)
    large, large_sorting = best(step(ours, 4096), distances_and_argsort(4096), repeats=3)
    memory = int(subprocess.check_output([sys.executable, __file__, "memory"], text=True))

    passed = [
        at_least("batch  100: times faster than the plain triplet loss", small_peer / small, 1),
        at_least("batch 1024: times faster than the plain triplet loss", middle_peer / middle, 50),
        at_most("batch 1024: times the distance matrix and its argsort", again / sorting, 2),
        at_most("batch 4096: times the distance matrix and its argsort", large / large_sorting, 6),
        at_most("batch 4096: MiB of memory above the start", memory, MEMORY_BAR),
    ]
    return 0 if all(passed) else 1


def step(loss: torch.nn.Module, n: int) -> Callable[[], None]:
    embeddings, labels = batch(n)

    def run() -> None:
        leaf = embeddings.clone().requires_grad_()
        loss(leaf, labels).backward()

    return run


def distances_and_argsort(n: int) -> Callable[[], torch.Tensor]:
    embeddings, _ = batch(n)
    return lambda: torch.cdist(embeddings, embeddings).argsort(dim=1)


def batch(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(n, BITS, generator=generator), torch.arange(n) % CLASSES


def peak_memory_of_one_step(n: int) -> int:
    """Return the peak memory of one step in MiB, above the memory before it."""
    loss = OrderAwareTripletLoss(margin=MARGIN)
    step(loss, 64)()
    before = memory_mib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    step(loss, n)()
    return memory_mib("VmHWM") - before


def memory_mib(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) // 1024


if __name__ == "__main__":
    sys.exit(main())
