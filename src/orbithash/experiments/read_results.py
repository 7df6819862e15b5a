"""Results of a table from its results.json: all figures, without the runs they came from."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orbithash.errors import InputError
from orbithash.experiments.declarations import Line, Row, Table
from orbithash.experiments.sources import FineTuning, Network, Source
from orbithash.experiments.statistics import PairedTest, Summary
from orbithash.experiments.table import Cell, Column, Results


def read_results(file: Path) -> Results:
    """The results that `reproduce` wrote."""
    try:
        return as_results(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"cannot read {file} ({error}); give a results.json that reproduce wrote"
        ) from None


def as_results(values: Mapping[str, Any]) -> Results:
    columns = tuple((column["source"], column["n_bits"]) for column in values["columns"])
    cells: dict[tuple[str, Column], Cell] = {}
    for row in values["rows"]:
        for cell in row["cells"]:
            cells[row["name"], (cell["source"], cell["n_bits"])] = as_cell(cell)
    return Results(
        table=Table(
            name=values["table"],
            title=values["title"],
            bits=tuple(dict.fromkeys(n_bits for _, n_bits in columns)),
            reference=values["reference"],
            lines=tuple(as_line(row) for row in values["rows"]),
            powers=tuple(values["powers"]),
        ),
        sources=tuple(as_source(source) for source in values["sources"]),
        columns=columns,
        seeds=tuple(values["seeds"]),
        cells=cells,
        stages={row["name"]: row["stages"] for row in values["rows"]},
        missing=tuple(values["missing"]),
    )


def as_line(row: Mapping[str, Any]) -> Line:
    method = row["stages"][-1]["method"]
    return Line(
        Row(name=row["name"], shown=row["shown"], method=method, preset=row["preset"]),
        row["shown"],
        row["in_paper"],
    )


def as_source(source: Mapping[str, Any]) -> Source:
    """A source that is known by name alone."""
    sizes = {part: source[part] for part in ("train", "query", "database")}
    network = FineTuning("", Network("", None), "") if source["fine_tuned"] else None
    return Source(source["name"], None, "", sizes, fine_tuning=network)


def as_cell(cell: Mapping[str, Any]) -> Cell:
    test = cell["reference_above"]
    return Cell(
        maps={int(seed): value for seed, value in cell["maps"].items()},
        map=Summary(cell["map"], cell["deviation"], cell["standard_error"]),
        bounds=(cell["bounds"][0], cell["bounds"][1]),
        printed=cell["printed"],
        reference_above=PairedTest(**test) if test else None,
        p_holm=cell["p_holm"],
        folders=tuple(cell["runs"]),
        curves=cell["curves"],
    )
