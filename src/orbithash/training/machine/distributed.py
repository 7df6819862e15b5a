"""Data-parallel training: each process gets a share of every batch, the loss sees the whole batch.

Ranking lists and triplets span the whole batch. Embeddings are gathered with their gradient, every
process computes the same loss, and torch's DistributedDataParallel sums the shares' gradients.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class Processes:
    """The rank of this process and the number of processes; a single one needs no torchrun."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes the files and prints."""
        return self.rank == 0

    def share(self, n: int) -> slice:
        """Return this process's slice of `n` items: nearly equal slices, in order.

        >>> [Processes(rank, 3).share(7) for rank in range(3)]
        [slice(0, 3, None), slice(3, 5, None), slice(5, 7, None)]
        """
        small, larger = divmod(n, self.count)
        start = self.rank * small + min(self.rank, larger)
        return slice(start, start + small + (self.rank < larger))

    def parallel(self, network: nn.Module) -> nn.Module:
        """Wrap the network so that a backward pass sums the gradients of all processes."""
        return network if self.count == 1 else DistributedDataParallel(network)

    def freeze_unused(self, network: nn.Module, inputs: Float[Tensor, "n ..."]) -> None:
        """Freeze parameters that get no gradient from these inputs.

        Some networks have such parameters, for example a mask token where nothing is masked, and
        DistributedDataParallel would wait for their gradients forever.
        """
        if self.count == 1:
            return
        was_training = network.training
        network.eval()(inputs).sum().backward()
        network.train(was_training)
        for parameter in network.parameters():
            parameter.requires_grad_(parameter.grad is not None)
            parameter.grad = None

    def gather(self, embeddings: Float[Tensor, "n bits"]) -> Float[Tensor, "all bits"]:
        """Return the embeddings of the whole batch, in order, with their gradient."""
        if self.count == 1:
            return embeddings
        gathered: Tensor = GatherWithGradient.apply(embeddings, self)  # type: ignore[no-untyped-call]
        return gathered

    def gather_constant(self, values: Shaped[Tensor, "n ..."]) -> Shaped[Tensor, "all ..."]:
        """Return the rows of all processes, in their order; the numbers of rows may differ."""
        return values if self.count == 1 else torch.cat(all_rows(values, self))

    def gather_objects(self, value: Any) -> list[Any]:
        """Return the value of each process; it must be picklable."""
        if self.count == 1:
            return [value]
        values: list[Any] = [None] * self.count
        distributed.all_gather_object(values, value)
        return values

    def any_of(self, *flags: bool) -> tuple[bool, ...]:
        """Return each flag, True if it is True in any process, so that all take the same branch."""
        return tuple(any(flag) for flag in zip(*self.gather_objects(flags), strict=True))

    def share_buffers(self, network: nn.Module) -> None:
        """Copy the first process's buffers, such as the running means of batch normalisation.

        They differ, because each process has seen its own share of the last batch.
        """
        if self.count > 1:
            for buffer in network.buffers():
                distributed.broadcast(buffer, 0)

    def seed_by_rank(self) -> None:
        """Give each process its own random numbers, for the dropout of its share of a batch."""
        if self.count > 1:
            torch.manual_seed(torch.initial_seed() + self.rank)

    @contextmanager
    def one_after_another(self, *, shared: bool) -> Iterator[None]:
        """Let the first process go first if what it writes is shared, then all others."""
        if self.count > 1 and shared and not self.first:
            distributed.barrier()
        yield
        if self.count > 1 and shared and self.first:
            distributed.barrier()

    @contextmanager
    def same_draws(self, seed: int) -> Iterator[None]:
        """Draw the same random numbers in all processes inside the block."""
        if self.count == 1:
            yield
            return
        devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            yield


SINGLE_PROCESS = Processes()


@contextmanager
def joined_processes() -> Iterator[Processes]:
    """Join the processes that torchrun started, or yield this one alone."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield SINGLE_PROCESS
        return
    backend = "gloo"
    n_here = int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"]))
    if torch.cuda.device_count() >= n_here:  # one GPU for each process
        backend = "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    # Others wait while the first process computes features, which may take hours.
    distributed.init_process_group(backend, timeout=timedelta(days=2))
    try:
        yield Processes(distributed.get_rank(), distributed.get_world_size())
    finally:
        distributed.destroy_process_group()


class GatherWithGradient(torch.autograd.Function):
    """All processes' embeddings; in the backward pass each process takes its own gradient."""

    @staticmethod
    def forward(ctx: Any, embeddings: Tensor, processes: Processes) -> Tensor:
        parts = all_rows(embeddings, processes)
        ctx.start = sum(len(part) for part in parts[: processes.rank])
        ctx.n, ctx.count = len(embeddings), processes.count
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        # Every process has the loss of the whole batch, so no exchange is needed. The factor undoes
        # the mean over processes that DistributedDataParallel takes: the sum is wanted.
        return gradients[0][ctx.start : ctx.start + ctx.n] * ctx.count, None


def all_rows(values: Shaped[Tensor, "n ..."], processes: Processes) -> list[Tensor]:
    """Return each process's rows, padded for sending: shares may differ in length."""
    lengths = [int(length) for length in processes.gather_objects(len(values))]
    padded = values.new_zeros((max(lengths), *values.shape[1:]))
    padded[: len(values)] = values.detach()
    received = [torch.empty_like(padded) for _ in lengths]
    distributed.all_gather(received, padded)
    return [part[:length] for part, length in zip(received, lengths, strict=True)]
