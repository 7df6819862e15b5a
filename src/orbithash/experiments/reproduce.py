"""Tables of the paper reproduced: plan the runs, execute the missing ones, write the tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orbithash.experiments.report.examples import find_examples
from orbithash.experiments.report.latex import to_latex
from orbithash.experiments.report.markdown import to_markdown
from orbithash.experiments.report.table_figures import (
    draw_table_figures,
    read_histories,
    write_figures,
)
from orbithash.experiments.report.table_report import (
    render_table_report,
    training_times,
    version_counts,
)
from orbithash.experiments.tables.plan import PlannedRun, plan_runs, unique_runs
from orbithash.experiments.tables.results import Results, make_results
from orbithash.experiments.tables.results_json import to_json
from orbithash.experiments.tables.run import find_finished
from orbithash.experiments.tables.sources import TableSource
from orbithash.experiments.tables.spec import TableSpec, read_tuning_records
from orbithash.experiments.tables.workers import RunEvent, RunListener, execute_runs
from orbithash.files import write_text

RESULTS, REPORT, FIGURES = "results.json", "report.html", "figures"
WRITERS: Mapping[str, Callable[[Results], str]] = {"table.md": to_markdown, "table.tex": to_latex}


@dataclass(frozen=True, eq=False)
class Plan:
    """The runs of each table; tables may share runs."""

    tables: Mapping[TableSpec, list[PlannedRun]]

    def runs(self) -> list[PlannedRun]:
        return unique_runs(run for runs in self.tables.values() for run in runs)


@dataclass(frozen=True, eq=False)
class Reproduction:
    """The results of the tables, and the runs that failed."""

    results: tuple[Results, ...]
    failures: Mapping[str, str]  # run → reason


def make_plan(
    tables: Sequence[TableSpec],
    sources: Sequence[TableSource],
    *,
    bits: Sequence[int] | None = None,
    n_seeds: int = 5,
    epochs: int | None = None,
) -> Plan:
    """Plan every run that the tables need, with seeds 0, 1, …"""
    return Plan(
        {
            table: plan_runs(table, sources, bits=bits, seeds=range(n_seeds), epochs=epochs)
            for table in tables
        }
    )


def reproduce_tables(
    plan: Plan, out: Path, *, jobs: int = 1, on_event: RunListener, command: str = ""
) -> Reproduction:
    """Execute the runs that are not finished, and write each table to a folder of its name.

    The reports print `command` as the way to repeat them.
    """
    failures: dict[str, str] = {}

    def collect_failures(run: PlannedRun, event: RunEvent) -> None:
        if event.failure is not None:
            failures[str(run)] = event.failure
        on_event(run, event)

    waiting = [run for run in plan.runs() if find_finished(run, out) is None]
    execute_runs(waiting, out, jobs=jobs, on_event=collect_failures)
    results = tuple(
        write_table(table, runs, out, command=command) for table, runs in plan.tables.items()
    )
    return Reproduction(results, failures)


def table_folder(results: Results, out: Path) -> Path:
    fine_tuned = any(source.fine_tuning is not None for source in results.sources)
    return out / (f"{results.table.name}-fine-tuned" if fine_tuned else results.table.name)


def write_table(
    table: TableSpec, runs: Sequence[PlannedRun], out: Path, *, command: str = ""
) -> Results:
    """Write the table of the finished runs, in place of an earlier one.

    Drawing the figures takes some seconds, so a table whose results have not changed is kept.
    """
    finished = {run.key: done for run in runs if (done := find_finished(run, out))}
    results = make_results(table, runs, finished)
    folder = table_folder(results, out)
    folder.mkdir(parents=True, exist_ok=True)
    # Removed first and written last: if results.json is there, all other files are up to date.
    if not is_written(folder / RESULTS, to_json(results)) or not (folder / REPORT).exists():
        (folder / RESULTS).unlink(missing_ok=True)
        for name, write in WRITERS.items():
            write_text(folder / name, write(results))
        figures = draw_table_figures(results, read_histories(runs, out))
        write_figures(figures, folder / FIGURES)
        report = render_table_report(
            results,
            figures,
            tuning=read_tuning_records(),
            examples=find_examples(results, runs, out),
            times=training_times(runs, finished),
            versions=version_counts(runs, out),
            command=command,
        )
        write_text(folder / REPORT, report)
        write_text(folder / RESULTS, to_json(results))
    return results


def is_written(file: Path, text: str) -> bool:
    return file.exists() and file.read_text(encoding="utf-8") == text
