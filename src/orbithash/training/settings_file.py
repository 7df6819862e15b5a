"""Settings in a TOML file: what `orbithash tune` writes and `orbithash train --settings` reads.

method            the method they were found for
margin_of_bits    the margin as a share of the bits, so that it serves codes of any length
[options]         of the method, where not its defaults
[settings]        what differs from the default preset, by the names of `TrainingSettings`

Whatever else is in the file is for whoever reads it.
"""

import json
import tomllib
from collections import abc
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

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
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}; check the path") from None
    except ValueError as error:
        raise InputError(
            f"{file} has no settings to train with ({error}); give a file that tune wrote"
        ) from None
    if "method" not in values:
        raise InputError(f"{file} has settings for no method; give a file that tune wrote")
    kinds = get_type_hints(ChosenSettings)
    ours = {name: value for name, value in values.items() if name in kinds}
    check_kinds(file, "", ours, kinds)
    check_kinds(file, "settings.", ours.get("settings", {}), get_type_hints(TrainingSettings))
    return ChosenSettings(**ours)


def check_kinds(
    file: Path, place: str, values: Mapping[str, Any], kinds: Mapping[str, Any]
) -> None:
    """Raise unless every value is known by its name and of the kind that it must be."""
    for name, value in values.items():
        if name not in kinds:
            raise InputError(f"{file} sets {name!r}; there are {', '.join(sorted(kinds))}")
        if not is_of_kind(value, kinds[name]):
            raise InputError(
                f"{file} sets {place}{name} to {value!r}; it must be {described(kinds[name])}"
            )


def is_of_kind(value: Any, kind: Any) -> bool:
    """Whether a value of a TOML file is what a field is declared to be.

    >>> is_of_kind(3, float), is_of_kind(3.5, int), is_of_kind(True, int), is_of_kind("3", float)
    (True, False, False, False)
    """
    if alternatives := get_args(kind):
        if get_origin(kind) is Literal:
            return value in alternatives
        if get_origin(kind) is abc.Mapping:
            return isinstance(value, Mapping)
        return any(is_of_kind(value, alternative) for alternative in alternatives)
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)


def described(kind: Any) -> str:
    """A kind in words."""
    if get_origin(kind) is Literal:
        return " or ".join(get_args(kind))
    if get_origin(kind) is abc.Mapping:
        return "a table"
    plain = next((each for each in get_args(kind) if each is not type(None)), kind)
    return {int: "a whole number", float: "a number", str: "text"}[plain]


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
