"""Tables of the paper made again: plan the runs, execute those not done, write what they give."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orbithash.experiments.report.html import measured_times, render_report, used_versions
from orbithash.experiments.report.latex import to_latex
from orbithash.experiments.report.markdown import to_markdown
from orbithash.experiments.report.table_figures import read_histories, table_figures, write_figures
from orbithash.experiments.tables.examples import find_examples
from orbithash.experiments.tables.plan import Run, plan_runs, without_repeats
from orbithash.experiments.tables.results import Results, make_results, to_json
from orbithash.experiments.tables.run import find_finished
from orbithash.experiments.tables.sources import Source
from orbithash.experiments.tables.spec import Table, read_choices
from orbithash.experiments.tables.workers import Event, Tell, run_all
from orbithash.files import whole_file


@dataclass(frozen=True, eq=False)
class Plan:
    """The runs of each table; runs that tables share are the same run."""

    tables: Mapping[Table, list[Run]]

    def runs(self) -> list[Run]:
        return without_repeats(run for runs in self.tables.values() for run in runs)


@dataclass(frozen=True, eq=False)
class Reproduction:
    """The tables, and why runs are missing from them."""

    results: tuple[Results, ...]
    failures: Mapping[str, str]  # the reason by the run


def make_plan(
    tables: Sequence[Table],
    sources: Sequence[Source],
    *,
    bits: Sequence[int] | None = None,
    n_seeds: int = 5,
    epochs: int | None = None,
) -> Plan:
    """Every run that the tables need, from seeds 0, 1, …"""
    return Plan(
        {
            table: plan_runs(table, sources, bits=bits, seeds=range(n_seeds), epochs=epochs)
            for table in tables
        }
    )


def reproduce(
    plan: Plan, out: Path, *, jobs: int = 1, tell: Tell, command: str = ""
) -> Reproduction:
    """Execute what is not done yet and write every table into a folder of its name.

    `command` is how a reader of the reports can do the same.
    """
    failures: dict[str, str] = {}

    def hear(run: Run, event: Event) -> None:
        if event.failure is not None:
            failures[str(run)] = event.failure
        tell(run, event)

    waiting = [run for run in plan.runs() if find_finished(run, out) is None]
    run_all(waiting, out, jobs=jobs, tell=hear)
    results = tuple(
        write_table(table, runs, out, command=command) for table, runs in plan.tables.items()
    )
    return Reproduction(results, failures)


RESULTS, REPORT, FIGURES = "results.json", "report.html", "figures"
WRITERS: Mapping[str, Callable[[Results], str]] = {"table.md": to_markdown, "table.tex": to_latex}


def table_folder(results: Results, out: Path) -> Path:
    whole = any(source.fine_tuning is not None for source in results.sources)
    return out / (f"{results.table.name}-fine-tuned" if whole else results.table.name)


def write_table(table: Table, runs: Sequence[Run], out: Path, *, command: str = "") -> Results:
    """Write the table from the runs that are done, in place of an earlier one.

    The figures cost some seconds, so that a table of the same results is left as it stands.
    """
    found = {run.key: find_finished(run, out) for run in runs}
    finished = {key: done for key, done in found.items() if done}
    results = make_results(table, runs, finished)
    folder = table_folder(results, out)
    folder.mkdir(parents=True, exist_ok=True)
    # Removed first and written last: where they stand, all that follows from them does.
    if not is_written(folder / RESULTS, to_json(results)) or not (folder / REPORT).exists():
        (folder / RESULTS).unlink(missing_ok=True)
        for name, write in WRITERS.items():
            write_whole(folder / name, write(results))
        figures = table_figures(results, read_histories(runs, out))
        write_figures(figures, folder / FIGURES)
        report = render_report(
            results,
            figures,
            choices=read_choices(),
            examples=find_examples(results, runs, out),
            times=measured_times(runs, finished),
            versions=used_versions(runs, out),
            command=command,
        )
        write_whole(folder / REPORT, report)
        write_whole(folder / RESULTS, to_json(results))
    return results


def is_written(file: Path, text: str) -> bool:
    return file.exists() and file.read_text(encoding="utf-8") == text


def write_whole(file: Path, text: str) -> None:
    with whole_file(file) as opened:
        opened.write(text.encode())
