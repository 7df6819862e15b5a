"""Everything that training changes, as tensors and plain values."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbithash.encoders import Epoch


class Memory:
    """A memory bank: the last `size` embeddings with their labels, and a teacher's vectors if any.

    Embeddings are constants from earlier steps: some steps out of date, and without a gradient. A
    size of 0 stores nothing.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.embeddings: Float[Tensor, "m bits"] | None = None
        self.labels: Tensor | None = None
        self.teacher: Float[Tensor, "m d"] | None = None

    def add(
        self,
        embeddings: Float[Tensor, "n bits"],
        labels: Tensor,
        teacher: Float[Tensor, "n d"] | None = None,
    ) -> None:
        if self.size:
            self.embeddings = self._last(self.embeddings, embeddings.detach())
            self.labels = self._last(self.labels, labels)
            self.teacher = None if teacher is None else self._last(self.teacher, teacher)

    def _last(self, kept: Tensor | None, new: Tensor) -> Tensor:
        rows = new if kept is None else torch.cat([kept, new])
        return rows[-self.size :].clone()  # a view would keep the dropped rows alive

    def tensors(self) -> dict[str, Tensor]:
        kept = {"embeddings": self.embeddings, "labels": self.labels, "teacher": self.teacher}
        return {name: tensor for name, tensor in kept.items() if tensor is not None}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `tensors` returned."""
        self.embeddings, self.labels = tensors.get("embeddings"), tensors.get("labels")
        self.teacher = tensors.get("teacher")


class BestEpoch:
    """Keeps the weights with the best validation score; without scores, it changes nothing."""

    def __init__(self, network: nn.Module, *, patience: int) -> None:
        self.network, self.patience = network, patience
        self.score = -math.inf
        self.n_without_improvement = 0  # consecutive scores
        self.weights: dict[str, Tensor] = {}

    def offer(self, score: float) -> None:
        if score > self.score:
            self.score, self.n_without_improvement = score, 0
            self.weights = {
                name: weight.clone() for name, weight in self.network.state_dict().items()
            }
        else:
            self.n_without_improvement += 1

    def out_of_patience(self) -> bool:
        return self.n_without_improvement >= self.patience

    def restore(self) -> None:
        if self.weights:
            self.network.load_state_dict(self.weights)

    def tensors(self) -> dict[str, Tensor]:
        return self.weights

    def values(self) -> dict[str, Any]:
        return {"score": self.score, "worse_since": self.n_without_improvement}

    def restore_from(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Restore what `tensors` and `values` returned."""
        self.weights = dict(tensors)
        self.score, self.n_without_improvement = values["score"], values["worse_since"]


@runtime_checkable
class CountsTriplets(Protocol):
    """A loss that reports the triplets of its last batch, and the share that is active."""

    active_share: float  # share of the triplets within the margin
    n_triplets: int


class EpochTotals:
    """Totals over the batches of an epoch: losses, active triplets, and bits that are set."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.active: list[float] = []
        self.n_images = 0
        self.n_triplets: int | None = None  # None if the loss does not count them
        self.ones: Tensor | None = None  # number of images with each bit set

    def add(self, loss: nn.Module, value: Tensor, embeddings: Float[Tensor, "n bits"]) -> None:
        self.losses.append(value.item())
        active_share: float | None = getattr(loss, "active_share", None)
        if active_share is not None:  # as of a loss that `CountsTriplets`
            self.active.append(active_share)
            self.n_triplets = (self.n_triplets or 0) + cast(CountsTriplets, loss).n_triplets
        ones = (embeddings.detach() > 0.5).sum(dim=0).cpu()
        self.ones = ones if self.ones is None else self.ones + ones
        self.n_images += len(embeddings)

    def tensors(self) -> dict[str, Tensor]:
        return {} if self.ones is None else {"ones": self.ones}

    def values(self) -> dict[str, Any]:
        return {
            "losses": self.losses,
            "active": self.active,
            "n_images": self.n_images,
            "n_triplets": self.n_triplets,
        }

    def restore(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Restore what `tensors` and `values` returned."""
        self.ones = tensors.get("ones")
        self.losses, self.active = list(values["losses"]), list(values["active"])
        self.n_images = values["n_images"]
        self.n_triplets = values.get("n_triplets")  # not in checkpoints of earlier versions

    def mean_loss(self) -> float:
        return sum(self.losses) / len(self.losses)

    def active_share(self) -> float | None:
        return sum(self.active) / len(self.active) if self.active else None

    def bit_balance(self) -> float:
        """Return 1 if every bit is set for half of the images, 0 if all bits are constant."""
        if self.ones is None:
            return 0.0
        return float(1 - (2 * self.ones / self.n_images - 1).abs().mean())


@dataclass(eq=False)
class TrainingState:
    """The state of training: with data and settings, all that determines the rest of the run."""

    network: nn.Module
    loss: nn.Module
    optimizer: torch.optim.Optimizer
    memory: Memory
    best: BestEpoch
    history: list[Epoch] = field(default_factory=list)
    epoch: int = 0
    part_size: int | None = None  # images of a batch that are embedded at once; None: all
    # Of the current epoch:
    batch: int = 0  # number of batches done
    seconds: float = 0.0  # elapsed
    totals: EpochTotals = field(default_factory=EpochTotals)

    def end_epoch(self, done: Epoch) -> None:
        self.history.append(done)
        self.epoch += 1
        self.batch, self.seconds, self.totals = 0, 0.0, EpochTotals()

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors, under names such as `network/conv1.weight`."""
        parts: dict[str, Mapping[str, Tensor]] = {
            "network": self.network.state_dict(),
            "loss": self.loss.state_dict(),
            "optimizer": optimizer_tensors(self.optimizer),
            "memory": self.memory.tensors(),
            "best": self.best.tensors(),
            "tally": self.totals.tensors(),
        }
        return {
            f"{part}/{name}": tensor
            for part, named in parts.items()
            for name, tensor in named.items()
        }

    def values(self) -> dict[str, Any]:
        """Return everything else as plain values; JSON keeps them to the last digit."""
        return {
            "epoch": self.epoch,
            "batch": self.batch,
            "seconds": self.seconds,
            "part_size": self.part_size,
            "history": [asdict(epoch) for epoch in self.history],
            "best": self.best.values(),
            "tally": self.totals.values(),
        }

    def restore(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Restore what `tensors` and `values` returned, on the device of the network."""
        self.network.load_state_dict(part_of(tensors, "network"))
        self.loss.load_state_dict(part_of(tensors, "loss"))
        restore_optimizer(self.optimizer, part_of(tensors, "optimizer"))
        device = next(self.network.parameters()).device
        remembered = part_of(tensors, "memory")
        self.memory.restore({name: tensor.to(device) for name, tensor in remembered.items()})
        self.best.restore_from(part_of(tensors, "best"), values["best"])
        self.history = [Epoch(**epoch) for epoch in values["history"]]
        self.epoch, self.batch, self.seconds = values["epoch"], values["batch"], values["seconds"]
        # As before, because parts change the last digits; smaller if less memory is free now.
        sizes = [size for size in (self.part_size, values.get("part_size")) if size is not None]
        self.part_size = min(sizes, default=None)
        self.totals = EpochTotals()
        self.totals.restore(part_of(tensors, "tally"), values["tally"])


def part_of(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    """Return the tensors whose names start with `part/`, without that prefix."""
    prefix = f"{part}/"
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's state of each parameter, under names such as `3.exp_avg`."""
    return {
        f"{number}.{name}": value
        for number, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
        if value is not None
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, _, name = key.partition(".")
        parameter = parameters[int(number)]
        if value.shape == parameter.shape:
            # With the memory layout of the parameter, which fused steps require.
            value = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
        state.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict(optimizer.state_dict() | {"state": state})
