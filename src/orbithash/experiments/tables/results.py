"""The results of a table: MAP over seeds, tests against the reference, the published MAP."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from orbithash.evaluation import Scores
from orbithash.experiments.tables.plan import PlannedRun, RunKey, Stage, describe_stage
from orbithash.experiments.tables.run import RUNS, UNSEEN, FinishedRun
from orbithash.experiments.tables.sources import TableSource
from orbithash.experiments.tables.spec import TableRow, TableSpec, published_map
from orbithash.experiments.tables.statistics import (
    SIGNIFICANT,
    PairedTest,
    SeedMaps,
    Summary,
    holm,
    mean_bounds,
    mean_precision_at,
    mean_recall_precision,
    paired_test,
    summarise,
)

Column = tuple[str, int]  # source name, n_bits
# Figures beside MAP, by name in results.json. If classes were held out, the first two are of unseen
# in unseen, and the last three of all queries in the whole database.
BESIDE = (
    "recall_at_1",
    "map_at_r",
    "seen in seen",
    "seen in all",
    "unseen in all",
    "look",
    "look_asymmetric",
    "distinct_codes",
)


@dataclass(frozen=True, eq=False)
class Cell:
    """One method on one source at one code length, over the seeds."""

    maps: Mapping[int, float]  # by seed
    map: Summary
    bounds: tuple[float, float]  # lowest and highest MAP over all orders of ties; means
    published_map: float | None
    reference_test: PairedTest | None  # of the reference minus this method
    p_holm: float | None  # of that test, corrected for all methods of the column
    folders: tuple[str, ...]
    curves: Mapping[str, list[Any]]
    asymmetric_maps: Mapping[int, float] = field(default_factory=dict)  # by seed, where known
    # By name of BESIDE and by seed, where known.
    beside: Mapping[str, SeedMaps] = field(default_factory=dict)

    def mean_of(self, name: str) -> float | None:
        """Return a figure beside MAP, the mean over the seeds; None if it is not known."""
        values = self.beside.get(name)
        return fmean(values.values()) if values else None

    @property
    def asymmetric_gain(self) -> PairedTest | None:
        """The test of asymmetric minus Hamming ranking; None with fewer than two seeds."""
        return paired_test(self.asymmetric_maps, self.maps)

    @property
    def published_difference(self) -> float | None:
        """Our MAP minus the published one."""
        return None if self.published_map is None else self.map.mean - self.published_map


@dataclass(frozen=True, eq=False)
class Standing:
    """The rank of the reference in a column, among some rows."""

    first: str  # display name of the highest row
    behind: float  # how far the reference is below the first; 0 if it is the first
    standard_error: float | None  # of the first
    next: str  # display name of the highest of the other rows
    ahead: float  # how far the reference is above that one; negative if it is below
    p: float | None  # of the test between these two, corrected for all methods of the column
    largest_p: float | None  # of the tests with all of these rows
    left_out: tuple[str, ...]  # rows with fewer seeds, which cannot be compared

    @property
    def is_first(self) -> bool:
        return self.behind == 0

    @property
    def next_beyond_noise(self) -> bool:
        """Whether the difference to the next row is significant."""
        return self.p is not None and self.p < SIGNIFICANT

    @property
    def all_beyond_noise(self) -> bool:
        """Whether the differences to all rows are significant."""
        return self.largest_p is not None and self.largest_p < SIGNIFICANT

    @property
    def within_one_error(self) -> bool:
        return self.standard_error is not None and self.behind <= self.standard_error


@dataclass(frozen=True, eq=False)
class Results:
    """A table filled in from its finished runs."""

    table: TableSpec
    sources: tuple[TableSource, ...]
    columns: tuple[Column, ...]
    seeds: tuple[int, ...]
    cells: Mapping[tuple[str, Column], Cell]  # by row and column; absent if all its runs failed
    stages: Mapping[str, list[dict[str, Any]]]  # by row: method, options and settings of each
    missing: tuple[str, ...]  # runs that failed or are not done

    def best(self, column: Column) -> str | None:
        """Return the row with the highest mean, among those with every seed."""
        cells = self.complete_cells(column)
        return max(cells, key=lambda row: cells[row].map.mean) if cells else None

    def standing(self, column: Column, *, in_paper_only: bool) -> Standing | None:
        """Rank the reference; None if it or all other rows are incomplete."""
        complete = self.complete_cells(column)
        compared = [
            row for row in self.table.rows if row.is_ranked and (row.in_paper or not in_paper_only)
        ]
        cells = {row.display_name: complete[row.name] for row in compared if row.name in complete}
        reference_name = self.display_name(self.table.reference)
        reference = cells.pop(reference_name, None)
        if reference is None or not cells:
            return None
        next_name, other = max(cells.items(), key=lambda named: named[1].map.mean)
        ahead = reference.map.mean - other.map.mean
        first = other if ahead < 0 else reference
        p_values = [cell.p_holm for cell in cells.values() if cell.p_holm is not None]
        return Standing(
            first=next_name if ahead < 0 else reference_name,
            behind=max(0.0, -ahead),
            standard_error=first.map.standard_error,
            next=next_name,
            ahead=ahead,
            p=other.p_holm,
            largest_p=max(p_values) if len(p_values) == len(cells) else None,
            left_out=tuple(row.display_name for row in compared if row.name not in complete),
        )

    def complete_cells(self, column: Column) -> dict[str, Cell]:
        """Return the column's cells of codes that have every seed, by row."""
        ranked = {row.name for row in self.table.rows if row.is_ranked}
        return {
            row: cell
            for (row, cell_column), cell in self.cells.items()
            if cell_column == column and len(cell.maps) == len(self.seeds) and row in ranked
        }

    @property
    def halves(self) -> bool:
        """Whether half of the classes was held out, and the figures are theirs."""
        return any(source.halves is not None for source in self.sources)

    def display_name(self, name: str) -> str:
        return next(row.display_name for row in self.table.rows if row.name == name)

    def source(self, name: str) -> TableSource:
        return next(source for source in self.sources if source.name == name)


def make_results(
    table: TableSpec, runs: Sequence[PlannedRun], finished: Mapping[RunKey, FinishedRun]
) -> Results:
    """Fill a table in from those of its runs that are finished."""
    columns = tuple(dict.fromkeys((run.source.name, run.n_bits) for run in runs))
    cells: dict[tuple[str, Column], Cell] = {}
    for column in columns:
        done = {
            row.name: [run for run in runs if in_cell(run, row, column) and run.key in finished]
            for row in table.rows
        }
        maps = {
            name: {run.seed: ranked_scores(finished[run.key].scores).map for run in row_runs}
            for name, row_runs in done.items()
        }
        tests = {
            row.name: paired_test(maps[table.reference], maps[row.name])
            for row in table.rows
            if row.is_ranked and row.name != table.reference
        }
        corrected = holm({name: test.p for name, test in tests.items() if test})
        for row in table.rows:
            row_runs = done[row.name]
            if not row_runs:
                continue
            whole = {run.seed: finished[run.key].scores for run in row_runs}
            scores = [ranked_scores(of_run) for of_run in whole.values()]
            cells[row.name, column] = Cell(
                maps=maps[row.name],
                map=summarise(list(maps[row.name].values())),
                bounds=mean_bounds(scores),
                published_map=cell_published_map(row, row_runs[0]),
                reference_test=tests.get(row.name),
                p_holm=corrected.get(row.name),
                folders=tuple(f"{RUNS}/{run.folder().as_posix()}" for run in row_runs),
                curves=mean_curves(scores),
                asymmetric_maps={
                    seed: value
                    for seed, of_run in whole.items()
                    if (value := ranked_scores(of_run).map_asymmetric) is not None
                },
                beside=beside_by_seed(whole),
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


def ranked_scores(scores: Scores) -> Scores:
    """Return the scores that tables rank: those of unseen classes if some were held out."""
    return scores.transfer[UNSEEN] if scores.transfer else scores


def beside_by_seed(scores_by_seed: Mapping[int, Scores]) -> dict[str, dict[int, float]]:
    """Return the figures beside MAP by name and seed, without those that are not known."""
    by_name: dict[str, dict[int, float]] = {name: {} for name in BESIDE}
    for seed, scores in scores_by_seed.items():
        ranked = ranked_scores(scores)
        figures = {part: of_part.map for part, of_part in scores.transfer.items()} | {
            "recall_at_1": ranked.recall_at.get(1),
            "map_at_r": ranked.map_at_r,
            "look": scores.look,
            "look_asymmetric": scores.look_asymmetric,
            "distinct_codes": scores.distinct_codes,
        }
        for name in BESIDE:
            if (value := figures.get(name)) is not None:
                by_name[name][seed] = value
    return {name: values for name, values in by_name.items() if values}


def in_cell(run: PlannedRun, row: TableRow, column: Column) -> bool:
    return run.row == row.name and (run.source.name, run.n_bits) == column


def cell_published_map(row: TableRow, run: PlannedRun) -> float | None:
    dataset, method = run.source.dataset, row.spec.published
    if run.held_out:
        return None
    return published_map(dataset.key, method, run.n_bits) if dataset and method else None


def mean_curves(runs: Sequence[Scores]) -> dict[str, list[Any]]:
    """Return precision and recall by radius, and precision at N, averaged over the runs."""
    recall, precision = mean_recall_precision(runs)
    numbers, precision_at_n = mean_precision_at(runs)
    return {
        "recall": recall.tolist(),
        "precision": precision.tolist(),
        "n": numbers.tolist(),
        "precision_at_n": precision_at_n.tolist(),
    }


def stage_values(stage: Stage) -> dict[str, Any]:
    """Return how a stage is trained, for any code length."""
    return describe_stage(stage) | {"margin_of_bits": stage.margin_of_bits}
