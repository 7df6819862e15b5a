"""The declared tables: the methods each compares, their training, and the paper's figures."""

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
    declared = read_toml(f"{name}.toml")
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
    declared = files("orbithash.experiments.tables").joinpath("declared", path)
    return tomllib.loads(declared.read_text(encoding="utf-8"))


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


PRINTED = ("main", "ablation", "selection")


@dataclass(frozen=True)
class Dataset:
    """A dataset that the paper has figures for."""

    key: str
    shown: str


def published_dataset(source: str) -> Dataset | None:
    """The paper's dataset whose name the source's name begins with, if there is one.

    >>> published_dataset("voc2007_googlenet").shown
    'VOC2007'
    >>> published_dataset("birds")
    """
    datasets: dict[str, str] = read_published()["datasets"]
    for key, shown in datasets.items():
        if source.lower().startswith(key):
            return Dataset(key, shown)
    return None


def published_map(dataset: str, method: str, n_bits: int) -> float | None:
    """The MAP that the paper prints, if it does; tables that share a method agree.

    >>> published_map("voc2007", "order_aware", 32)
    0.8041
    >>> published_map("voc2007", "order_aware", 24)
    """
    published = read_published()
    if n_bits not in published["bits"]:
        return None
    for table in PRINTED:
        figures = published[table][dataset].get(method)
        if figures is not None:
            return float(figures[published["bits"].index(n_bits)])
    return None


@cache
def read_published() -> dict[str, Any]:
    return read_toml("published.toml")
