"""The declared tables: which methods each compares, and how these are trained."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from orbithash.errors import InputError

# In the order in which they are listed for users.
TABLES = ("main", "ablation", "selection", "gamma", "curves", "claim", "shallow")


@dataclass(frozen=True, eq=False)
class Row:
    """One way to make codes, as rows.toml declares it; rows.toml says what the fields are."""

    name: str
    shown: str
    method: str
    published: str | None = None
    preset: str = "default"
    settings: Mapping[str, Any] = field(default_factory=dict)
    fine_tuning: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    margin_of_bits: float | None = None
    after: str | None = None


@dataclass(frozen=True, eq=False)
class Line:
    """A row's place in one table."""

    row: Row
    shown: str
    in_paper: bool


@dataclass(frozen=True, eq=False)
class Table:
    """Rows to compare at some code lengths, one of them with each of the others."""

    name: str
    title: str
    bits: tuple[int, ...]
    reference: str  # the name of the row that is compared with each other one
    lines: tuple[Line, ...]
    powers: tuple[int, ...] = ()  # γ of each row, if that is what the table varies


def read_table(name: str) -> Table:
    """The declaration of one of the `TABLES`."""
    if name not in TABLES:
        raise InputError(f"there is no table {name!r}; choose from {', '.join(TABLES)}")
    declared = read_toml(f"tables/{name}.toml")
    return Table(
        name=name,
        title=declared["title"],
        bits=tuple(declared["bits"]),
        reference=declared["reference"],
        lines=(
            *lines(declared["rows"], in_paper=True),
            *lines(declared.get("not_in_the_paper", []), in_paper=False),
        ),
        powers=tuple(declared.get("powers", ())),
    )


def lines(entries: Sequence[str | Mapping[str, str]], *, in_paper: bool) -> list[Line]:
    """An entry is a row's name, or the name with how it is shown in this table."""
    rows = read_rows()
    result = []
    for entry in entries:
        row = rows[entry if isinstance(entry, str) else entry["row"]]
        shown = row.shown if isinstance(entry, str) else entry["shown"]
        result.append(Line(row, shown, in_paper))
    return result


@cache
def read_rows() -> Mapping[str, Row]:
    """Every declared row by its name."""
    return {name: Row(name=name, **values) for name, values in read_toml("rows.toml").items()}


def read_toml(path: str) -> dict[str, Any]:
    return tomllib.loads(files("orbithash.experiments").joinpath(path).read_text(encoding="utf-8"))
