"""Processes that train one network together: each sees a share of every batch, all see the loss.

Rank lists and triplets span the whole batch: embeddings are gathered with their gradient, every
process computes the same loss of the same embeddings, and torch's DistributedDataParallel adds up
what each share contributes to the gradient.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class Processes:
    """How many processes train together and which of them this is; one alone needs no torchrun."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and talks."""
        return self.rank == 0

    def share(self, n: int) -> slice:
        """The part of `n` items that is this process's: nearly equal parts, in order.

        >>> [Processes(rank, 3).share(7) for rank in range(3)]
        [slice(0, 3, None), slice(3, 5, None), slice(5, 7, None)]
        """
        small, larger = divmod(n, self.count)
        start = self.rank * small + min(self.rank, larger)
        return slice(start, start + small + (self.rank < larger))

    def parallel(self, network: nn.Module) -> nn.Module:
        """The network such that a backward pass adds up the gradients of all processes."""
        return network if self.count == 1 else DistributedDataParallel(network)

    def leave_unused(self, network: nn.Module, inputs: Float[Tensor, "n ..."]) -> None:
        """Let parameters be constants that get no gradient from these inputs.

        Some networks have such, as one for masked images where none is masked, and processes that
        train together would wait for their gradients in vain.
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
        """The embeddings of the whole batch, in order, with their gradient."""
        if self.count == 1:
            return embeddings
        gathered: Tensor = GatherWithGradient.apply(embeddings, self)  # type: ignore[no-untyped-call]
        return gathered

    def gather_constant(self, values: Shaped[Tensor, "n ..."]) -> Shaped[Tensor, "all ..."]:
        """What all processes hold, in their order; the numbers of rows may differ."""
        return values if self.count == 1 else torch.cat(all_rows(values, self))

    def gather_objects(self, value: Any) -> list[Any]:
        """One plain value of each process."""
        if self.count == 1:
            return [value]
        values: list[Any] = [None] * self.count
        distributed.all_gather_object(values, value)
        return values

    def agree(self, *wishes: bool) -> tuple[bool, ...]:
        """Each wish, granted if any process has it: all must take the same turn at a step."""
        return tuple(any(wish) for wish in zip(*self.gather_objects(wishes), strict=True))

    def share_buffers(self, network: nn.Module) -> None:
        """Take over the first process's buffers, as the means that batch normalisation keeps.

        Each has seen its own share since the last step began.
        """
        if self.count > 1:
            for buffer in network.buffers():
                distributed.broadcast(buffer, 0)

    def draw_apart(self) -> None:
        """From here on let each process draw its own, as dropout should in each share."""
        if self.count > 1:
            torch.manual_seed(torch.initial_seed() + self.rank)

    @contextmanager
    def drawing_together(self, place: int) -> Iterator[None]:
        """What is drawn inside is the same in all processes and follows from the place."""
        if self.count == 1:
            yield
            return
        devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(place)
            yield


ALONE = Processes()


@contextmanager
def joined_processes() -> Iterator[Processes]:
    """The processes that torchrun started, or this one alone."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ALONE
        return
    backend = "gloo"
    n_here = int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"]))
    if torch.cuda.device_count() >= n_here:  # a graphics card for each, should they want one
        backend = "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    distributed.init_process_group(backend)
    try:
        yield Processes(distributed.get_rank(), distributed.get_world_size())
    finally:
        distributed.destroy_process_group()


class GatherWithGradient(torch.autograd.Function):
    """All processes' embeddings; backward, each process takes the gradient of its own."""

    @staticmethod
    def forward(ctx: Any, embeddings: Tensor, processes: Processes) -> Tensor:
        parts = all_rows(embeddings, processes)
        ctx.start = sum(len(part) for part in parts[: processes.rank])
        ctx.n, ctx.count = len(embeddings), processes.count
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        # Every process has the loss of the whole batch, so its gradient needs no exchange. The
        # network's gradients will be averaged over the processes where their sum is meant.
        return gradients[0][ctx.start : ctx.start + ctx.n] * ctx.count, None


def all_rows(values: Shaped[Tensor, "n ..."], processes: Processes) -> list[Tensor]:
    """Each process's rows. Shares of a batch may differ in length, and what is sent may not."""
    lengths = [int(length) for length in processes.gather_objects(len(values))]
    padded = values.new_zeros((max(lengths), *values.shape[1:]))
    padded[: len(values)] = values.detach()
    received = [torch.empty_like(padded) for _ in lengths]
    distributed.all_gather(received, padded)
    return [part[:length] for part, length in zip(received, lengths, strict=True)]
