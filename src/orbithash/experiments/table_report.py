"""A table of the paper as one HTML file: figures, settings, examples; nothing is loaded."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from orbithash.encoders import read_record
from orbithash.experiments.chosen import Choices
from orbithash.experiments.examples import Examples
from orbithash.experiments.figure import to_svg
from orbithash.experiments.markdown import (
    column_name,
    how_tested,
    how_to_read,
    in_short,
    p_in_words,
    signed,
    standings,
)
from orbithash.experiments.page import Picture, picture, render
from orbithash.experiments.plan import Run
from orbithash.experiments.row_settings import row_settings, shown_value, usual_settings
from orbithash.experiments.run import Finished, run_folder
from orbithash.experiments.statistics import SIGNIFICANT
from orbithash.experiments.table import Column, Results
from orbithash.experiments.table_figures import TableFigure

# Shown without being asked for; the others open by a click.
FIRST_FIGURES = ("map_over_bits", "map_over_gamma")


@dataclass(frozen=True)
class Times:
    """How long runs took, in seconds of training."""

    means: Mapping[tuple[str, Column], float]  # of a row's runs in a column
    total: float


def measured_times(
    runs: Sequence[Run], finished: Mapping[tuple[str, str, int, int], Finished]
) -> Times:
    cells: dict[tuple[str, Column], list[float]] = {}
    for run in runs:
        if run.key in finished:
            cell = (run.row, (run.source.name, run.n_bits))
            cells.setdefault(cell, []).append(finished[run.key].seconds)
    means = {cell: mean(seconds) for cell, seconds in cells.items()}
    return Times(means, sum(sum(seconds) for seconds in cells.values()))


def used_versions(runs: Sequence[Run], out: Path) -> list[tuple[str, int]]:
    """The versions that runs were made with, and how many runs; one line unless they differ."""
    folders = (run_folder(run, out) for run in runs)
    counts = Counter(
        ", ".join(f"{name} {number}" for name, number in read_record(folder).versions.items())
        for folder in folders
        if folder.is_dir()
    )
    return counts.most_common()


def render_report(
    results: Results,
    figures: Sequence[TableFigure],
    *,
    choices: Choices,
    examples: Sequence[Examples],
    times: Times,
    versions: Sequence[tuple[str, int]],
    command: str = "",
) -> str:
    """The text of the page."""
    pictures = [as_picture(results, figure) for figure in figures]
    first = [figure.name.startswith(FIRST_FIGURES) for figure in figures]
    if not any(first):
        first = [place < 2 for place in range(len(figures))]
    return render(
        "table.html",
        results=results,
        reference=results.shown(results.table.reference),
        how_to_read=how_to_read(results),
        how_tested=how_tested(results),
        in_short=in_short(results),
        standings=standings(results),
        column_names={column: column_name(results, column) for column in results.columns},
        best={column: results.best(column) for column in results.columns},
        signed=signed,
        p_in_words=p_in_words,
        significant=SIGNIFICANT,
        first_pictures=[p for p, is_first in zip(pictures, first, strict=True) if is_first],
        more_pictures=[
            (figure.title + (", not in the paper" if figure.name.endswith("_more") else ""), p)
            for figure, p, is_first in zip(figures, pictures, first, strict=True)
            if not is_first
        ],
        usual={name: shown_value(value) for name, value in usual_settings(results).items()},
        settings=row_settings(results),
        choices=choices,
        examples=examples,
        times=times,
        versions=versions,
        command=command,
    )


def as_picture(results: Results, figure: TableFigure) -> Picture:
    sources = " and ".join(source.shown for source in results.sources)
    lines = ", ".join(
        dict.fromkeys(curve.name for panel in figure.panels for curve in panel.curves)
    )
    return picture(to_svg(figure.drawn()), f"{figure.title} on {sources}: {lines}")
