"""results.json: a table's results, written so that pages can be rendered from them later."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orbithash.errors import InputError
from orbithash.experiments.tables.results import BESIDE, Cell, Column, Results, Standing
from orbithash.experiments.tables.sources import FineTuning, NetworkSpec, TableSource
from orbithash.experiments.tables.spec import (
    RowSpec,
    TableRow,
    TableSpec,
    TuningRecords,
    read_tuning_records,
)
from orbithash.experiments.tables.statistics import PairedTest, Summary


def to_json(results: Results) -> str:
    """Serialise every figure; the same runs give the same text."""
    table, tuning = results.table, read_tuning_records()
    return json.dumps(
        {
            "table": table.name,
            "title": table.title,
            "reference": table.reference,
            "powers": table.powers,
            "seeds": results.seeds,
            "settings_chosen": tuning.about,
            "sources": [source_values(source) for source in results.sources],
            "columns": [column_values(results, column) for column in results.columns],
            "rows": [row_values(results, row, tuning) for row in table.rows],
            "missing": results.missing,
        },
        indent=2,
        ensure_ascii=False,
    )


def read_results(file: Path) -> Results:
    """Read a results.json."""
    try:
        return parse_results(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"cannot read {file} ({error}); give a results.json that reproduce wrote"
        ) from None


def source_values(source: TableSource) -> dict[str, Any]:
    return {
        "name": source.name,
        "paper": source.dataset.key if source.dataset else None,
        "fine_tuned": source.fine_tuning is not None,
        **({"halves": source.halves} if source.halves else {}),
    } | source.sizes


def column_values(results: Results, column: Column) -> dict[str, Any]:
    source, n_bits = column
    values: dict[str, Any] = {"source": source, "n_bits": n_bits, "best": results.best(column)}
    for name, in_paper_only in (("in_paper", True), ("all", False)):
        standing = results.standing(column, in_paper_only=in_paper_only)
        values[name] = standing_values(standing) if standing else None
    return values


def standing_values(standing: Standing) -> dict[str, Any]:
    return asdict(standing) | {
        "is_first": standing.is_first,
        "within_one_error": standing.within_one_error,
        "next_beyond_noise": standing.next_beyond_noise,
        "all_beyond_noise": standing.all_beyond_noise,
    }


def row_values(results: Results, row: TableRow, tuning: TuningRecords) -> dict[str, Any]:
    return {
        "name": row.name,
        "shown": row.display_name,
        "in_paper": row.in_paper,
        "preset": row.spec.preset,
        "stages": results.stages[row.name],
        "chosen": asdict(tuning.rows[row.name]) if row.name in tuning.rows else None,
        "cells": [
            {"source": column[0], "n_bits": column[1]} | cell_values(cell)
            for column in results.columns
            if (cell := results.cells.get((row.name, column)))
        ],
    }


def cell_values(cell: Cell) -> dict[str, Any]:
    return {
        "map": cell.map.mean,
        "deviation": cell.map.deviation,
        "standard_error": cell.map.standard_error,
        "bounds": cell.bounds,
        "printed": cell.published_map,
        "difference": cell.published_difference,
        "reference_above": asdict(cell.reference_test) if cell.reference_test else None,
        "p_holm": cell.p_holm,
        "maps": {str(seed): value for seed, value in cell.maps.items()},
        "asymmetric_maps": {str(seed): value for seed, value in cell.asymmetric_maps.items()},
        **{
            name: {str(seed): value for seed, value in values.items()}
            for name, values in cell.beside.items()
        },
        "runs": cell.folders,
        "curves": cell.curves,
    }


def parse_results(values: Mapping[str, Any]) -> Results:
    columns = tuple((column["source"], column["n_bits"]) for column in values["columns"])
    return Results(
        table=TableSpec(
            name=values["table"],
            title=values["title"],
            bits=tuple(dict.fromkeys(n_bits for _, n_bits in columns)),
            reference=values["reference"],
            rows=tuple(parse_row(row) for row in values["rows"]),
            powers=tuple(values["powers"]),
        ),
        sources=tuple(parse_table_source(source) for source in values["sources"]),
        columns=columns,
        seeds=tuple(values["seeds"]),
        cells={
            (row["name"], (cell["source"], cell["n_bits"])): parse_cell(cell)
            for row in values["rows"]
            for cell in row["cells"]
        },
        stages={row["name"]: row["stages"] for row in values["rows"]},
        missing=tuple(values["missing"]),
    )


def parse_row(row: Mapping[str, Any]) -> TableRow:
    spec = RowSpec(
        name=row["name"],
        display_name=row["shown"],
        method=row["stages"][-1]["method"],
        preset=row["preset"],
    )
    return TableRow(spec, row["shown"], row["in_paper"])


def parse_table_source(source: Mapping[str, Any]) -> TableSource:
    """Return a source with its name and sizes only: reports need no more."""
    sizes = {part: source[part] for part in ("train", "query", "database")}
    fine_tuning = FineTuning("", NetworkSpec("", None), "") if source["fine_tuned"] else None
    return TableSource(
        source["name"], None, "", sizes, fine_tuning=fine_tuning, halves=source.get("halves")
    )


def parse_cell(cell: Mapping[str, Any]) -> Cell:
    test = cell["reference_above"]
    return Cell(
        maps=by_seed(cell["maps"]),
        map=Summary(cell["map"], cell["deviation"], cell["standard_error"]),
        bounds=(cell["bounds"][0], cell["bounds"][1]),
        published_map=cell["printed"],
        reference_test=PairedTest(**test) if test else None,
        p_holm=cell["p_holm"],
        folders=tuple(cell["runs"]),
        curves=cell["curves"],
        # Missing in files of earlier versions.
        asymmetric_maps=by_seed(cell.get("asymmetric_maps", {})),
        beside={name: by_seed(cell[name]) for name in BESIDE if name in cell},
    )


def by_seed(values: Mapping[str, float]) -> dict[int, float]:
    return {int(seed): value for seed, value in values.items()}
