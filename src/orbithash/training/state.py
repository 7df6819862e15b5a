"""Everything that training changes as it goes on, as tensors and plain values."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from orbithash.training.best import BestEpoch
from orbithash.training.epoch import Epoch
from orbithash.training.memory import Memory
from orbithash.training.tally import Tally


@dataclass(eq=False)
class TrainingState:
    """Where training is: with the data and the settings, all that decides how it goes on."""

    network: nn.Module
    loss: nn.Module
    optimizer: torch.optim.Optimizer
    memory: Memory
    best: BestEpoch
    history: list[Epoch] = field(default_factory=list)
    epoch: int = 0
    # Of the epoch that is under way:
    batch: int = 0  # so many are done
    seconds: float = 0.0  # it has taken so far
    tally: Tally = field(default_factory=Tally)

    def end_epoch(self, done: Epoch) -> None:
        self.history.append(done)
        self.epoch += 1
        self.batch, self.seconds, self.tally = 0, 0.0, Tally()

    def tensors(self) -> dict[str, Tensor]:
        """By names that say whose they are, such as `network/conv1.weight`."""
        parts: dict[str, Mapping[str, Tensor]] = {
            "network": self.network.state_dict(),
            "loss": self.loss.state_dict(),
            "optimizer": optimizer_tensors(self.optimizer),
            "memory": self.memory.tensors(),
            "best": self.best.tensors(),
            "tally": self.tally.tensors(),
        }
        return {
            f"{part}/{name}": tensor
            for part, named in parts.items()
            for name, tensor in named.items()
        }

    def values(self) -> dict[str, Any]:
        """What is no tensor; JSON keeps it to the last digit."""
        return {
            "epoch": self.epoch,
            "batch": self.batch,
            "seconds": self.seconds,
            "history": [asdict(epoch) for epoch in self.history],
            "best": self.best.values(),
            "tally": self.tally.values(),
        }

    def restore(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Become what these were taken from, wherever the network is now."""
        self.network.load_state_dict(part_of(tensors, "network"))
        self.loss.load_state_dict(part_of(tensors, "loss"))
        restore_optimizer(self.optimizer, part_of(tensors, "optimizer"))
        device = next(self.network.parameters()).device
        remembered = part_of(tensors, "memory")
        self.memory.restore({name: tensor.to(device) for name, tensor in remembered.items()})
        self.best.restore_from(part_of(tensors, "best"), values["best"])
        self.history = [Epoch(**epoch) for epoch in values["history"]]
        self.epoch, self.batch, self.seconds = values["epoch"], values["batch"], values["seconds"]
        self.tally = Tally()
        self.tally.restore(part_of(tensors, "tally"), values["tally"])


def part_of(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    """The tensors under one name, without it."""
    prefix = f"{part}/"
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What the optimizer remembers of each parameter, as `3.exp_avg`."""
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
            # In memory as the parameter lies, which fused steps rely on.
            value = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
        state.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict(optimizer.state_dict() | {"state": state})
