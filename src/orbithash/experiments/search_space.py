"""Which settings a search may try for a method."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orbithash.losses import LOSSES
from orbithash.training import PRESETS

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True)
class Numbers:
    """Numbers from lowest to highest; whole ones if these are whole."""

    lowest: int | float
    highest: int | float
    default: int | float
    log: bool = True  # drawn evenly over their logarithm

    def draw(self, trial: "optuna.Trial", name: str) -> int | float:
        if isinstance(self.lowest, int) and isinstance(self.highest, int):
            return trial.suggest_int(name, self.lowest, self.highest, log=self.log)
        return trial.suggest_float(name, self.lowest, self.highest, log=self.log)

    def __str__(self) -> str:
        return f"{self.lowest:g} to {self.highest:g}"


@dataclass(frozen=True)
class Names:
    """One of several names."""

    choices: tuple[str, ...]
    default: str

    def draw(self, trial: "optuna.Trial", name: str) -> str:
        chosen: str = trial.suggest_categorical(name, self.choices)
        return chosen

    def __str__(self) -> str:
        return ", ".join(self.choices)


Space = Mapping[str, Numbers | Names]


def space_of(method: str, *, epochs: int) -> Space:
    """The settings that make a difference to this loss; `epochs` are the most it may take."""
    parameters = inspect.signature(LOSSES[method]).parameters
    base = PRESETS["default"]
    space: dict[str, Numbers | Names] = {}
    usual: float | None = getattr(LOSSES[method], "margin_of_bits", None)
    if usual is not None:  # else there is none, or it has nothing to do with bits
        space["margin_of_bits"] = Numbers(usual / 8, usual * 4, default=usual)
    rate = base.learning_rate
    space["learning_rate"] = Numbers(rate / 10, rate * 10, default=rate)
    if "reduction" in parameters:
        has_weights = "weighting" in parameters
        reductions = ("active", "anchor", "mean") + (("weight",) if has_weights else ())
        space["reduction"] = Names(reductions, default=parameters["reduction"].default)
    space["dropout"] = Numbers(0.0, 0.7, default=base.dropout, log=False)
    space["epochs"] = Numbers(max(1, epochs // 5), epochs, default=min(epochs, base.epochs))
    return space


def draw(trial: "optuna.Trial", space: Space) -> dict[str, Any]:
    """The values that a trial is to have."""
    return {name: dimension.draw(trial, name) for name, dimension in space.items()}


def default_values(space: Space) -> dict[str, Any]:
    return {name: dimension.default for name, dimension in space.items()}
