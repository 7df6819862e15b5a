"""Settings in a TOML file: what `orbithash tune` writes and `orbithash train --settings` reads.

method            the method they were found for
margin_of_bits    the margin as a share of the bits, so that it serves codes of any length
[options]         of the method, where not its defaults
[settings]        what differs from the default preset, by the names of `TrainingSettings`

Whatever else is in the file is for whoever reads it.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from orbithash.errors import InputError
from orbithash.training.settings import TrainingSettings


@dataclass(frozen=True, eq=False)
class ChosenSettings:
    """A method with how to train it."""

    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    margin_of_bits: float | None = None

    def options_at(self, n_bits: int) -> dict[str, Any]:
        """The method's options for codes of this length."""
        if self.margin_of_bits is None:
            return dict(self.options)
        return {**self.options, "margin": self.margin_of_bits * n_bits}


def read_settings(file: Path) -> ChosenSettings:
    """What a file says, checked."""
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
        chosen = ChosenSettings(
            method=values["method"],
            settings=values.get("settings", {}),
            options=values.get("options", {}),
            margin_of_bits=values.get("margin_of_bits"),
        )
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}; check the path") from None
    except (ValueError, KeyError) as error:
        raise InputError(
            f"{file} has no settings to train with ({error}); give a file that tune wrote"
        ) from None
    known = {each.name for each in fields(TrainingSettings)}
    if unknown := sorted(chosen.settings.keys() - known):
        raise InputError(f"{file} sets {unknown[0]!r}; there are {', '.join(sorted(known))}")
    return chosen


def as_toml(values: Mapping[str, Any]) -> str:
    """Plain values, and tables of them, as TOML.

    >>> print(as_toml({"method": "triplet", "settings": {"epochs": 50, "memory": 0}}))
    method = "triplet"
    <BLANKLINE>
    [settings]
    epochs = 50
    memory = 0
    <BLANKLINE>
    """
    tables = {name: value for name, value in values.items() if isinstance(value, Mapping)}
    lines = [f"{name} = {json.dumps(v)}" for name, v in values.items() if name not in tables]
    for name, table in tables.items():
        lines += ["", f"[{name}]", *(f"{key} = {inline(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def inline(value: Any) -> str:
    """A value on one line; JSON's numbers, strings and booleans are TOML's too."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(k)} = {inline(v)}" for k, v in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)
