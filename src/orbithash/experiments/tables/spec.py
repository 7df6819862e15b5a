"""Declared tables: the methods each compares, how these were tuned, and the published MAP."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from orbithash.errors import InputError

# In the order in which they are listed for users.
TABLES = (
    "main",
    "ablation",
    "selection",
    "gamma",
    "curves",
    "claim",
    "shallow",
    "asymmetric",
    "nested",
    "unseen",
    "three_scores",
)
FEATURES = "features"  # method of a row that shows the float features themselves
PUBLISHED_TABLES = ("main", "ablation", "selection")  # of published.toml


@dataclass(frozen=True, eq=False)
class RowSpec:
    """A method with its settings, as declared in rows.toml, which documents the fields."""

    name: str
    display_name: str
    method: str
    published: str | None = None
    preset: str = "default"
    settings: Mapping[str, Any] = field(default_factory=dict)
    fine_tuning: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    margin_of_bits: float | None = None
    nested: bool = False
    after: str | None = None
    layers_of: str | None = None


@dataclass(frozen=True, eq=False)
class TableRow:
    """A declared row as one table shows it."""

    spec: RowSpec
    display_name: str
    in_paper: bool

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def is_ranked(self) -> bool:
        """Whether it makes codes, which are compared; floats are only shown beside them."""
        return self.spec.method != FEATURES


@dataclass(frozen=True, eq=False)
class TableSpec:
    """Rows to compare at some code lengths; one of them, the reference, is tested against each."""

    name: str
    title: str
    bits: tuple[int, ...]
    reference: str  # a row's name
    rows: tuple[TableRow, ...]
    powers: tuple[int, ...] = ()  # γ of each row, if the table varies it
    halves: bool = False  # half of the classes is held out, and the others are trained


@dataclass(frozen=True, eq=False)
class TuningRecord:
    """How the settings of one row were chosen: a section of tuning.toml."""

    trials: int | None = None  # number of settings tried
    searched: Mapping[str, str] = field(default_factory=dict)  # setting → values tried, as text
    validation_map: Mapping[str, float] = field(default_factory=dict)  # source → MAP of the choice
    note: str = ""


@dataclass(frozen=True, eq=False)
class TuningRecords:
    """tuning.toml: a text about all rows, and the record of each row that has one."""

    about: str
    rows: Mapping[str, TuningRecord]


@dataclass(frozen=True)
class PublishedDataset:
    """A dataset on which the paper reports MAP."""

    key: str
    display_name: str


def read_table(name: str) -> TableSpec:
    """Read the declaration of one of the `TABLES`."""
    if name not in TABLES:
        raise InputError(f"there is no table {name!r}; choose from {', '.join(TABLES)}")
    declared = read_toml(f"{name}.toml")
    return TableSpec(
        name=name,
        title=declared["title"],
        bits=tuple(declared["bits"]),
        reference=declared["reference"],
        rows=(
            *table_rows(declared["rows"], in_paper=True),
            *table_rows(declared.get("not_in_the_paper", []), in_paper=False),
        ),
        powers=tuple(declared.get("powers", ())),
        halves=declared.get("halves", False),
    )


@cache
def read_rows() -> Mapping[str, RowSpec]:
    """Read every declared row, by name."""
    return {
        name: RowSpec(name=name, display_name=values.pop("shown"), **values)
        for name, values in read_toml("rows.toml").items()
    }


@cache
def read_tuning_records() -> TuningRecords:
    return parse_tuning_records(read_toml("tuning.toml"))


def parse_tuning_records(values: Mapping[str, Any]) -> TuningRecords:
    rows = {name: TuningRecord(**fields) for name, fields in values.get("rows", {}).items()}
    return TuningRecords(str(values["about"]).strip(), rows)


def published_dataset(source: str) -> PublishedDataset | None:
    """Return the paper's dataset whose key the source's name starts with, if any.

    >>> published_dataset("voc2007_googlenet").display_name
    'VOC2007'
    >>> published_dataset("birds")
    """
    datasets: dict[str, str] = read_published()["datasets"]
    for key, display_name in datasets.items():
        if source.lower().startswith(key):
            return PublishedDataset(key, display_name)
    return None


def published_map(dataset: str, method: str, n_bits: int) -> float | None:
    """Return the published MAP, if any; tables that share a method agree on it.

    >>> published_map("voc2007", "order_aware", 32)
    0.8041
    >>> published_map("voc2007", "order_aware", 24)
    """
    published = read_published()
    if n_bits not in published["bits"]:
        return None
    for table in PUBLISHED_TABLES:
        maps = published[table][dataset].get(method)
        if maps is not None:
            return float(maps[published["bits"].index(n_bits)])
    return None


@cache
def read_published() -> dict[str, Any]:
    return read_toml("published.toml")


def table_rows(entries: Sequence[str | Mapping[str, str]], *, in_paper: bool) -> list[TableRow]:
    """Resolve entries: each is a row's name, or its name with another display name."""
    specs = read_rows()
    rows = []
    for entry in entries:
        spec = specs[entry if isinstance(entry, str) else entry["row"]]
        display_name = spec.display_name if isinstance(entry, str) else entry["shown"]
        rows.append(TableRow(spec, display_name, in_paper))
    return rows


def read_toml(path: str) -> dict[str, Any]:
    declared = files("orbithash.experiments.tables").joinpath("declared", path)
    return tomllib.loads(declared.read_text(encoding="utf-8"))
