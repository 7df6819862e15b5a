"""Speed of the order-aware loss, forward and backward, compared with peers in the same run.

64 bits, 20 classes, all triplets of the batch. The peers are pytorch-metric-learning's plain
triplet loss on all triplets, without weights, and the distance matrix with its argsort, the minimum
that any ranking loss must compute. The tensor operations for other devices run here on tensors of
the CPU, like the peer.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # waiting threads should sleep

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.losses import TripletMarginLoss
from torch.nn.functional import one_hot

from measure import at_least, at_most, best
from orbithash.losses import OrderAwareTripletLoss, order_aware
from orbithash.losses.batch import pairs

BITS, CLASSES, MARGIN = 64, 20, 8.0
MEMORY_BAR = 1024  # MiB


def main() -> int:
    if sys.argv[1:2] == ["memory"]:
        with tensor_operations() if sys.argv[2:] else nullcontext():
            print(peak_memory_of_one_step(4096))
        return 0
    print(f"loss, forward + backward, {torch.get_num_threads()} threads")
    ours = OrderAwareTripletLoss(margin=MARGIN)
    by_ndcg = OrderAwareTripletLoss(margin=MARGIN, weighting="ndcg")
    peer = TripletMarginLoss(
        margin=MARGIN, distance=LpDistance(normalize_embeddings=False, power=2)
    )
    step(ours, 64)()  # compile the kernels, or load them from the cache

    small, small_tensors, small_peer = best(
        step(ours, 100), in_tensors(step(ours, 100)), step(peer, 100), repeats=50
    )
    middle, middle_tensors, middle_peer = best(
        step(ours, 1024), in_tensors(step(ours, 1024)), step(peer, 1024), repeats=3
    )
    of_ap, of_ndcg = best(
        *(in_tensors(step(loss, 1024, several=True)) for loss in (ours, by_ndcg)), repeats=5
    )
    again, sorting = best(step(ours, 1024), distances_and_argsort(1024), repeats=10)
    large, large_sorting = best(step(ours, 4096), distances_and_argsort(4096), repeats=3)
    memory, memory_of_tensors = (
        int(subprocess.check_output([sys.executable, __file__, "memory", *path], text=True))
        for path in ([], ["tensors"])
    )
    largest, largest_sorting = best(
        step(ours, 16_384, n_classes=10), distances_and_argsort(16_384), repeats=1
    )

    passed = [
        at_least("batch  100: times faster than the plain triplet loss", small_peer / small, 1),
        at_least("batch 1024: times faster than the plain triplet loss", middle_peer / middle, 50),
        at_most("batch 1024: times the distance matrix and its argsort", again / sorting, 2),
        at_most("batch 4096: times the distance matrix and its argsort", large / large_sorting, 6),
        at_most("batch 16384, 10 classes: times the same", largest / largest_sorting, 6),
        at_most("batch 4096: MiB of memory above the start", memory, MEMORY_BAR),
    ]
    print("the same in tensor operations, as on other devices")
    passed += [
        at_least(
            "batch  100: times faster than the plain triplet loss", small_peer / small_tensors, 1
        ),
        at_least(
            "batch 1024: times faster than the plain triplet loss", middle_peer / middle_tensors, 3
        ),
        at_most("batch 1024: times the compiled kernel", middle_tensors / middle, 30),
        at_most("batch 1024: ΔNDCG, times ΔAP", of_ndcg / of_ap, 2),
        at_most("batch 4096: MiB of memory above the start", memory_of_tensors, MEMORY_BAR),
    ]
    return 0 if all(passed) else 1


def in_tensors(run: Callable[[], None]) -> Callable[[], None]:
    def run_in_tensors() -> None:
        with tensor_operations():
            run()

    return run_in_tensors


@contextmanager
def tensor_operations() -> Iterator[None]:
    """Compute the loss of tensors on the CPU as that of other devices."""
    modules = (order_aware, pairs)
    kernels = [module.uses_kernels for module in modules]
    for module in modules:
        module.uses_kernels = lambda device: False
    try:
        yield
    finally:
        for module, uses_kernels in zip(modules, kernels, strict=True):
            module.uses_kernels = uses_kernels


def step(
    loss: torch.nn.Module, n: int, *, n_classes: int = CLASSES, several: bool = False
) -> Callable[[], None]:
    """Return one step; with `several` labels per image, those in common grade the pairs 1 and 2."""
    embeddings = batch(n)
    labels = torch.arange(n) % n_classes
    if several:
        halves = labels + n_classes * (torch.arange(n) // n_classes % 2)
        labels = torch.cat([one_hot(labels), one_hot(halves)], dim=1)

    def run() -> None:
        leaf = embeddings.clone().requires_grad_()
        loss(leaf, labels).backward()

    return run


def distances_and_argsort(n: int) -> Callable[[], torch.Tensor]:
    embeddings = batch(n)
    return lambda: torch.cdist(embeddings, embeddings).argsort(dim=1)


def batch(n: int) -> torch.Tensor:
    return torch.rand(n, BITS, generator=torch.Generator().manual_seed(0))


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
