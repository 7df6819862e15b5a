"""A table as one HTML page with its figures, example searches and settings."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from orbithash.encoders import read_record
from orbithash.experiments.report.examples import SourceExamples
from orbithash.experiments.report.figure import to_svg
from orbithash.experiments.report.html import Picture, render_page, svg_picture
from orbithash.experiments.report.markdown import (
    HOW_BESIDE,
    HOW_LOOK,
    HOW_RANKED,
    asymmetric_lines,
    beside_figures,
    beside_header,
    column_name,
    format_p,
    has_asymmetric,
    has_look,
    how_tested,
    how_to_read,
    look_lines,
    signed,
    standing_lines,
    standing_summary,
)
from orbithash.experiments.report.table_figures import TableFigure
from orbithash.experiments.tables.plan import PlannedRun, RunKey, unique_runs
from orbithash.experiments.tables.results import Column, Results
from orbithash.experiments.tables.run import FinishedRun, run_folder
from orbithash.experiments.tables.spec import TuningRecords
from orbithash.experiments.tables.statistics import SIGNIFICANT
from orbithash.training.settings import LATER_SETTINGS

# Always visible; the others unfold at a click.
FIRST_FIGURES = ("map_over_bits", "map_over_gamma")


@dataclass(frozen=True)
class TrainingTimes:
    """Seconds of training."""

    means: Mapping[tuple[str, Column], float]  # by row and column, over the seeds
    total: float


@dataclass(frozen=True)
class RowSettings:
    """A row's method, its options, and those settings that differ from the common ones."""

    row: str
    display_name: str
    method: str
    settings: Mapping[str, str]


def render_table_report(
    results: Results,
    figures: Sequence[TableFigure],
    *,
    tuning: TuningRecords,
    examples: Sequence[SourceExamples],
    times: TrainingTimes,
    versions: Sequence[tuple[str, int]],
    command: str = "",
) -> str:
    """Return the text of the page."""
    pictures = [figure_picture(results, figure) for figure in figures]
    is_first = [figure.name.startswith(FIRST_FIGURES) for figure in figures]
    if not any(is_first):
        is_first = [number < 2 for number in range(len(figures))]
    return render_page(
        "table.html",
        results=results,
        reference=results.display_name(results.table.reference),
        how_to_read=how_to_read(results),
        how_tested=how_tested(results),
        standing_summary=standing_summary(results),
        standing_lines=standing_lines(results),
        column_names={column: column_name(results, column) for column in results.columns},
        best={column: results.best(column) for column in results.columns},
        how_ranked=HOW_RANKED if has_asymmetric(results) else "",
        asymmetric_lines=asymmetric_lines,
        how_look=HOW_LOOK if has_look(results) and not results.halves else "",
        look_lines=look_lines,
        how_beside=HOW_BESIDE if results.halves else "",
        beside_header=beside_header(),
        beside_figures=beside_figures,
        signed=signed,
        format_p=format_p,
        significant=SIGNIFICANT,
        first_pictures=[p for p, first in zip(pictures, is_first, strict=True) if first],
        more_pictures=[
            (figure.title + (", not in the paper" if figure.name.endswith("_more") else ""), p)
            for figure, p, first in zip(figures, pictures, is_first, strict=True)
            if not first
        ],
        common_settings={
            name: format_setting(value) for name, value in common_settings(results).items()
        },
        row_settings=row_settings(results),
        tuning=tuning,
        examples=examples,
        times=times,
        versions=versions,
        command=command,
    )


def training_times(
    runs: Sequence[PlannedRun], finished: Mapping[RunKey, FinishedRun]
) -> TrainingTimes:
    """Average the seconds of training over the seeds of each cell."""
    cells: dict[tuple[str, Column], list[float]] = {}
    for run in runs:
        if run.key in finished:
            cell = (run.row, (run.source.name, run.n_bits))
            cells.setdefault(cell, []).append(finished[run.key].seconds)
    means = {cell: mean(seconds) for cell, seconds in cells.items()}
    done = [run for run in unique_runs(runs) if run.key in finished]
    return TrainingTimes(means, sum(finished[run.key].seconds for run in done))


def version_counts(runs: Sequence[PlannedRun], out: Path) -> list[tuple[str, int]]:
    """Return the package versions of the runs, each with its number of runs."""
    folders = (run_folder(run, out) for run in unique_runs(runs))
    counts = Counter(
        ", ".join(f"{name} {number}" for name, number in read_record(folder).versions.items())
        for folder in folders
        if folder.is_dir()
    )
    return counts.most_common()


def common_settings(results: Results) -> dict[str, Any]:
    """Return the most common value of every setting, over all stages that train a network."""
    trained = [
        all_settings(stage["settings"])
        for stages in results.stages.values()
        for stage in stages
        if stage["settings"]
    ]
    names = dict.fromkeys(
        name
        for stages in results.stages.values()
        for stage in stages
        for name in stage["settings"] or ()
    )
    return {
        name: Counter(settings[name] for settings in trained).most_common(1)[0][0] for name in names
    }


def all_settings(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return recorded settings with those of later versions, which are left out if not set."""
    return {**LATER_SETTINGS, **recorded} if recorded else {}


def row_settings(results: Results) -> list[RowSettings]:
    """Return the settings of every row in the table's order; of two stages, the values of both."""
    common = common_settings(results)
    rows = []
    for row in results.table.rows:
        stages = results.stages[row.name]
        values: dict[str, list[str]] = {}
        for stage in stages:
            settings = all_settings(stage["settings"] or {})
            changed = {
                name: settings[name]
                for name in common
                if settings and settings[name] != common[name]
            }
            options = dict(stage["options"])
            if settings.get("reduction") is not None:
                options.pop("reduction", None)  # the loss's default; the settings override it
            if stage["margin_of_bits"] is not None:
                options["margin"] = f"{stage['margin_of_bits']:g} of the bits"
            for name, value in (options | changed).items():
                values.setdefault(name, []).append(format_setting(value))
        rows.append(
            RowSettings(
                row=row.name,
                display_name=row.display_name,
                method=", then ".join(stage["method"] for stage in stages),
                settings={name: ", then ".join(dict.fromkeys(v)) for name, v in values.items()},
            )
        )
    return rows


def format_setting(value: Any) -> str:
    """Format a value; None stands for the method's default.

    >>> format_setting(0.003), format_setting(None), format_setting(True)
    ('0.003', 'default', 'yes')
    """
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def figure_picture(results: Results, figure: TableFigure) -> Picture:
    sources = " and ".join(source.display_name for source in results.sources)
    lines = ", ".join(
        dict.fromkeys(curve.name for panel in figure.panels for curve in panel.curves)
    )
    return svg_picture(to_svg(figure.draw()), f"{figure.title} on {sources}: {lines}")
