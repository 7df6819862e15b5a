"""A table as one HTML file with its figures, settings and examples inside."""

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from orbithash.encoders import read_record
from orbithash.experiments.report.figure import follow_page, to_svg
from orbithash.experiments.report.markdown import (
    column_name,
    how_tested,
    how_to_read,
    in_short,
    p_in_words,
    signed,
    standings,
)
from orbithash.experiments.report.table_figures import TableFigure
from orbithash.experiments.tables.plan import Run
from orbithash.experiments.tables.results import Column, Results
from orbithash.experiments.tables.run import Finished, run_folder
from orbithash.experiments.tables.spec import Choices
from orbithash.experiments.tables.statistics import SIGNIFICANT

if TYPE_CHECKING:  # it makes its pictures with this module
    from orbithash.experiments.tables.examples import Examples


@dataclass(frozen=True)
class Picture:
    """A figure inside the page, which follows its light or dark colours."""

    source: str  # data URI
    description: str


def render(template: str, **values: Any) -> str:
    """The text of a page."""
    templates = Environment(
        loader=PackageLoader("orbithash.experiments.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template(template).render(**values)


def picture(svg: str, description: str) -> Picture:
    return Picture(data_uri(follow_page(svg).encode(), "image/svg+xml"), description)


def data_uri(content: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


@dataclass(frozen=True)
class RowSettings:
    """A row's method, its options, and the settings in which it is not as usual."""

    row: str
    shown: str
    method: str
    settings: Mapping[str, str]


def usual_settings(results: Results) -> dict[str, Any]:
    """The commonest value of every setting, among all trainings of a network."""
    trained = [
        stage["settings"]
        for stages in results.stages.values()
        for stage in stages
        if stage["settings"]
    ]
    names = trained[0] if trained else {}
    return {
        name: Counter(settings[name] for settings in trained).most_common(1)[0][0] for name in names
    }


def row_settings(results: Results) -> list[RowSettings]:
    """One for every row, in the table's order; a row of two stages says what each has."""
    usual = usual_settings(results)
    rows = []
    for line in results.table.lines:
        stages = results.stages[line.row.name]
        values: dict[str, list[str]] = {}
        for stage in stages:
            settings = stage["settings"] or {}
            own = {name: value for name, value in settings.items() if value != usual[name]}
            options = dict(stage["options"])
            if settings.get("reduction") is not None:
                options.pop("reduction", None)  # the loss's default, which the settings replace
            if stage["margin_of_bits"] is not None:
                options["margin"] = f"{stage['margin_of_bits']:g} of the bits"
            for name, value in (options | own).items():
                values.setdefault(name, []).append(shown_value(value))
        rows.append(
            RowSettings(
                row=line.row.name,
                shown=line.shown,
                method=", then ".join(stage["method"] for stage in stages),
                settings={name: ", then ".join(dict.fromkeys(v)) for name, v in values.items()},
            )
        )
    return rows


def shown_value(value: Any) -> str:
    """A value as one would write it; None leaves it to the method.

    >>> shown_value(0.003), shown_value(None), shown_value(True)
    ('0.003', 'its own', 'yes')
    """
    if value is None:
        return "its own"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


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
    examples: "Sequence[Examples]",
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
