"""How the settings of each row were chosen: facts from tuning.toml, for reports to print."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from orbithash.experiments.declarations import read_toml


@dataclass(frozen=True, eq=False)
class Chosen:
    """One row's search; tuning.toml says what the fields are."""

    trials: int | None = None
    searched: Mapping[str, str] = field(default_factory=dict)
    validation_map: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, eq=False)
class Choices:
    """What holds for all rows, and each row's own."""

    about: str
    rows: Mapping[str, Chosen]


@cache
def read_choices() -> Choices:
    return as_choices(read_toml("tuning.toml"))


def as_choices(values: Mapping[str, Any]) -> Choices:
    rows = {name: Chosen(**of_row) for name, of_row in values.get("rows", {}).items()}
    return Choices(str(values["about"]).strip(), rows)
