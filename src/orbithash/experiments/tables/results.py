"""A table of finished runs, beside the paper's figures; written to and read from results.json."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orbithash.errors import InputError
from orbithash.evaluation import Scores
from orbithash.experiments.tables.plan import Run, Stage, described
from orbithash.experiments.tables.run import RUNS, Finished
from orbithash.experiments.tables.sources import FineTuning, Network, Source
from orbithash.experiments.tables.spec import Line, Row, Table, published_map, read_choices
from orbithash.experiments.tables.statistics import (
    SIGNIFICANT,
    PairedTest,
    Summary,
    holm,
    mean_bounds,
    mean_precision_at,
    mean_recall_precision,
    paired_test,
    summarise,
)

Column = tuple[str, int]  # a source's name and a code length


@dataclass(frozen=True, eq=False)
class Cell:
    """One method on one source at one code length, over the seeds."""

    maps: Mapping[int, float]  # by seed
    map: Summary
    bounds: tuple[float, float]  # the lowest and highest MAP that an order of ties gives; means
    printed: float | None  # in the paper
    reference_above: PairedTest | None  # the reference minus this method
    p_holm: float | None  # of that test, for all methods of the column at once
    folders: tuple[str, ...]
    curves: Mapping[str, list[Any]]

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.printed is None else self.map.mean - self.printed


@dataclass(frozen=True, eq=False)
class Standing:
    """Where the reference stands in a column, among some rows."""

    first: str  # shown name
    behind: float  # how far the reference is behind the first; 0 if it is the first
    standard_error: float | None  # of the first
    next: str  # the highest of the other rows
    ahead: float  # how far the reference is ahead of it; below 0 where it is behind
    p: float | None  # of the paired test between these two, for all methods of the column at once
    largest_p: float | None  # of the tests with all of these rows
    left_out: tuple[str, ...]  # rows with fewer seeds, which cannot be compared

    @property
    def is_first(self) -> bool:
        return self.behind == 0

    @property
    def next_beyond_noise(self) -> bool:
        """Whether the difference to the next could hardly be the chance of training."""
        return self.p is not None and self.p < SIGNIFICANT

    @property
    def all_beyond_noise(self) -> bool:
        """Whether no difference to any row could be."""
        return self.largest_p is not None and self.largest_p < SIGNIFICANT

    @property
    def within_one_error(self) -> bool:
        return self.standard_error is not None and self.behind <= self.standard_error


@dataclass(frozen=True, eq=False)
class Results:
    """A table with its figures."""

    table: Table
    sources: tuple[Source, ...]
    columns: tuple[Column, ...]
    seeds: tuple[int, ...]
    cells: Mapping[tuple[str, Column], Cell]  # by row and column; what failed is not there
    stages: Mapping[str, list[dict[str, Any]]]  # how each row was trained
    missing: tuple[str, ...]  # the runs that failed

    def whole(self, column: Column) -> dict[str, Cell]:
        """The column's cells by row, of those with every seed."""
        return {
            row: cell
            for (row, place), cell in self.cells.items()
            if place == column and len(cell.maps) == len(self.seeds)
        }

    def best(self, column: Column) -> str | None:
        """The row with the highest mean over all seeds."""
        cells = self.whole(column)
        return max(cells, key=lambda row: cells[row].map.mean) if cells else None

    def standing(self, column: Column, *, in_paper_only: bool) -> Standing | None:
        """Where the reference stands; None if it or all others are missing."""
        whole = self.whole(column)
        compared = [line for line in self.table.lines if line.in_paper or not in_paper_only]
        rows = {line.shown: whole[line.row.name] for line in compared if line.row.name in whole}
        reference = rows.pop(self.shown(self.table.reference), None)
        if reference is None or not rows:
            return None
        next_shown, other = max(rows.items(), key=lambda pair: pair[1].map.mean)
        ahead = reference.map.mean - other.map.mean
        first = other if ahead < 0 else reference
        tests = [row.p_holm for row in rows.values() if row.p_holm is not None]
        return Standing(
            first=next_shown if ahead < 0 else self.shown(self.table.reference),
            behind=max(0.0, -ahead),
            standard_error=first.map.standard_error,
            next=next_shown,
            ahead=ahead,
            p=other.p_holm,
            largest_p=max(tests) if len(tests) == len(rows) else None,
            left_out=tuple(line.shown for line in compared if line.row.name not in whole),
        )

    def shown(self, row: str) -> str:
        return next(line.shown for line in self.table.lines if line.row.name == row)

    def source(self, name: str) -> Source:
        return next(source for source in self.sources if source.name == name)


def make_results(
    table: Table, runs: Sequence[Run], finished: Mapping[tuple[str, str, int, int], Finished]
) -> Results:
    """The figures of a table from those of its runs that are done."""
    columns = tuple(dict.fromkeys((run.source.name, run.n_bits) for run in runs))
    cells: dict[tuple[str, Column], Cell] = {}
    for column in columns:
        done = {
            line.row.name: [run for run in runs if at(run, line, column) and run.key in finished]
            for line in table.lines
        }
        maps = {
            row: {run.seed: finished[run.key].scores.map for run in its_runs}
            for row, its_runs in done.items()
        }
        tests = {
            row: paired_test(maps[table.reference], theirs)
            for row, theirs in maps.items()
            if row != table.reference
        }
        corrected = holm({row: test.p for row, test in tests.items() if test})
        for line in table.lines:
            row = line.row.name
            if done[row]:
                scores = [finished[run.key].scores for run in done[row]]
                cells[row, column] = Cell(
                    maps=maps[row],
                    map=summarise(list(maps[row].values())),
                    bounds=mean_bounds(scores),
                    printed=printed(line, done[row][0]),
                    reference_above=tests.get(row),
                    p_holm=corrected.get(row),
                    folders=tuple(f"{RUNS}/{run.folder().as_posix()}" for run in done[row]),
                    curves=mean_curves(scores),
                )
    return Results(
        table=table,
        sources=tuple({run.source.name: run.source for run in runs}.values()),
        columns=columns,
        seeds=tuple(dict.fromkeys(run.seed for run in runs)),
        cells=cells,
        stages={run.row: [stage_values(stage) for stage in run.stages] for run in runs},
        missing=tuple(str(run) for run in runs if run.key not in finished),
    )


def at(run: Run, line: Line, column: Column) -> bool:
    return run.row == line.row.name and (run.source.name, run.n_bits) == column


def printed(line: Line, run: Run) -> float | None:
    dataset, method = run.source.dataset, line.row.published
    return published_map(dataset.key, method, run.n_bits) if dataset and method else None


def mean_curves(runs: Sequence[Scores]) -> dict[str, list[Any]]:
    """Precision and recall by radius, and precision at N, over the runs."""
    recall, precision = mean_recall_precision(runs)
    numbers, at_n = mean_precision_at(runs)
    return {
        "recall": recall.tolist(),
        "precision": precision.tolist(),
        "n": numbers.tolist(),
        "precision_at_n": at_n.tolist(),
    }


def to_json(results: Results) -> str:
    """Every figure; the same runs give the same text."""
    table, choices = results.table, read_choices()
    return json.dumps(
        {
            "table": table.name,
            "title": table.title,
            "reference": table.reference,
            "powers": table.powers,
            "seeds": results.seeds,
            "settings_chosen": choices.about,
            "sources": [
                {
                    "name": source.name,
                    "paper": source.dataset.key if source.dataset else None,
                    "fine_tuned": source.fine_tuning is not None,
                }
                | source.sizes
                for source in results.sources
            ],
            "columns": [
                {"source": source, "n_bits": n_bits, "best": results.best((source, n_bits))}
                | {
                    name: None if standing is None else standing_values(standing)
                    for name, standing in (
                        ("in_paper", results.standing((source, n_bits), in_paper_only=True)),
                        ("all", results.standing((source, n_bits), in_paper_only=False)),
                    )
                }
                for source, n_bits in results.columns
            ],
            "rows": [
                {
                    "name": line.row.name,
                    "shown": line.shown,
                    "in_paper": line.in_paper,
                    "preset": line.row.preset,
                    "stages": results.stages[line.row.name],
                    "chosen": asdict(choices.rows[line.row.name])
                    if line.row.name in choices.rows
                    else None,
                    "cells": [
                        {"source": column[0], "n_bits": column[1]} | cell_values(cell)
                        for column in results.columns
                        if (cell := results.cells.get((line.row.name, column)))
                    ],
                }
                for line in table.lines
            ],
            "missing": results.missing,
        },
        indent=2,
        ensure_ascii=False,
    )


def stage_values(stage: Stage) -> dict[str, Any]:
    """How a stage was trained, at any code length."""
    return described(stage) | {"margin_of_bits": stage.margin_of_bits}


def standing_values(standing: Standing) -> dict[str, Any]:
    return asdict(standing) | {
        "is_first": standing.is_first,
        "within_one_error": standing.within_one_error,
        "next_beyond_noise": standing.next_beyond_noise,
        "all_beyond_noise": standing.all_beyond_noise,
    }


def cell_values(cell: Cell) -> dict[str, Any]:
    return {
        "map": cell.map.mean,
        "deviation": cell.map.deviation,
        "standard_error": cell.map.standard_error,
        "bounds": cell.bounds,
        "printed": cell.printed,
        "difference": cell.difference,
        "reference_above": asdict(cell.reference_above) if cell.reference_above else None,
        "p_holm": cell.p_holm,
        "maps": {str(seed): value for seed, value in cell.maps.items()},
        "runs": cell.folders,
        "curves": cell.curves,
    }


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
