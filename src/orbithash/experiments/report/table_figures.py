"""The figures of a table: MAP over bits or over γ, precision and recall, precision at N, training.

Sources stand side by side. Where a table has rows that are not in the paper, each figure comes
twice: with the paper's rows, and (`_more`) with the reference beside the others.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from orbithash.encoders.runs.run_folder import LOG
from orbithash.experiments.report.figure import (
    Axis,
    Curve,
    Panel,
    draw,
    precision_at_panel,
    precision_recall_panel,
    to_png,
    to_svg,
)
from orbithash.experiments.tables.plan import Run
from orbithash.experiments.tables.results import Cell, Results
from orbithash.experiments.tables.run import run_folder
from orbithash.experiments.tables.spec import Line
from orbithash.files import whole_file
from orbithash.training import read_log

MEASURES = ("loss", "active_share", "validation_map")


@dataclass(frozen=True, eq=False)
class History:
    """What each epoch measured; NaN where it did not."""

    loss: Float[np.ndarray, " epochs"]
    active_share: Float[np.ndarray, " epochs"]
    validation_map: Float[np.ndarray, " epochs"]


Histories = Mapping[tuple[str, str, int], History]  # by row, source and code length


def read_histories(runs: Sequence[Run], out: Path) -> Histories:
    """The histories of the rows that were trained; hashers have none."""
    logs: dict[tuple[str, str, int], list[list[dict[str, Any]]]] = {}
    for run in runs:
        file = run_folder(run, out) / LOG
        if run.epochs() and file.exists():
            logs.setdefault((run.row, run.source.name, run.n_bits), []).append(read_log(file))
    return {key: mean_history(of_seeds) for key, of_seeds in logs.items()}


def mean_history(logs: Sequence[Sequence[Mapping[str, Any]]]) -> History:
    """The mean of several logs, as long as the shortest."""
    n_epochs = min(len(log) for log in logs)
    means = {}
    for measure in MEASURES:
        # numpy reads None, where nothing was measured, as NaN.
        values = np.array(
            [[epoch.get(measure) for epoch in log[:n_epochs]] for log in logs], dtype=float
        )
        means[measure] = values.mean(axis=0)
    return History(**means)


MAP = Axis("MAP (expected over the order of ties)")
EPOCH = Axis("epoch")

# Of any table: a folder of figures may hold somebody else's too.
OUR_FILES = re.compile(
    r"(map_over_(bits|gamma)|(precision_recall|precision_at|training)_\d+_bits)(_more)?\.(svg|png)"
)


@dataclass(frozen=True, eq=False)
class TableFigure:
    """A figure before it is drawn."""

    name: str  # of its files
    title: str
    panels: tuple[Panel, ...]
    names: tuple[str, ...]  # of all lines, so that each looks the same in every such figure
    columns: int

    def drawn(self) -> Figure:
        return draw(self.panels, names=self.names, strong=1, columns=self.columns)


def write_figures(figures: Sequence[TableFigure], folder: Path) -> None:
    """Each as SVG and as PNG, in the place of all earlier ones; what else is there stays."""
    folder.mkdir(parents=True, exist_ok=True)
    for file_there in folder.iterdir():
        if OUR_FILES.fullmatch(file_there.name):
            file_there.unlink()
    for figure in figures:
        drawn = figure.drawn()
        for suffix, content in ((".svg", to_svg(drawn).encode()), (".png", to_png(drawn))):
            with whole_file(folder / f"{figure.name}{suffix}") as file:
                file.write(content)


def table_figures(results: Results, histories: Histories) -> list[TableFigure]:
    """Every figure that the table has data for, the most telling first."""
    figures = list(map_figures(results))
    for n_bits in dict.fromkeys(n_bits for _, n_bits in results.columns):
        for lines, ending in line_groups(results):
            figures += [
                figure_of(results, name + ending, title, lines, panels)
                for name, title, panels in (
                    (
                        f"precision_recall_{n_bits}_bits",
                        f"Precision and recall, {n_bits} bits",
                        score_panels(
                            results, lines, n_bits, recall_precision, precision_recall_panel
                        ),
                    ),
                    (
                        f"precision_at_{n_bits}_bits",
                        f"Precision at N, {n_bits} bits",
                        score_panels(results, lines, n_bits, precision_at_n, precision_at_panel),
                    ),
                    (
                        f"training_{n_bits}_bits",
                        f"Training, {n_bits} bits",
                        training_panels(results, lines, n_bits, histories),
                    ),
                )
            ]
    return [figure for figure in figures if any(panel.curves for panel in figure.panels)]


def line_groups(results: Results) -> list[tuple[list[Line], str]]:
    """The paper's rows, and the others beside the reference, each with the files' ending."""
    lines = results.table.lines
    others = [line for line in lines if not line.in_paper]
    reference = [line for line in lines if line.row.name == results.table.reference]
    groups = [([line for line in lines if line.in_paper], "")]
    return [*groups, (reference + others, "_more")] if others else groups


def figure_of(
    results: Results, name: str, title: str, lines: Sequence[Line], panels: Iterable[Panel]
) -> TableFigure:
    """The reference is the first of the names and drawn strongest."""
    reference = results.shown(results.table.reference)
    others = (line.shown for line in lines if line.shown != reference)
    return TableFigure(name, title, tuple(panels), (reference, *others), len(results.sources))


def map_figures(results: Results) -> Iterable[TableFigure]:
    """MAP over what the table varies; nothing if that is the method alone."""
    if results.table.powers:
        lengths = dict.fromkeys(f"{n_bits} bits" for _, n_bits in results.columns)
        panels = tuple(map_over_powers(results, source.name) for source in results.sources)
        yield TableFigure("map_over_gamma", "MAP over γ", panels, tuple(lengths), len(panels))
    elif len({n_bits for _, n_bits in results.columns}) > 1:
        for lines, ending in line_groups(results):
            yield figure_of(
                results,
                f"map_over_bits{ending}",
                "MAP over the number of bits",
                lines,
                (map_over_bits(results, lines, source.name) for source in results.sources),
            )


def map_over_bits(results: Results, lines: Sequence[Line], source: str) -> Panel:
    """A line per method."""
    lengths = tuple(n_bits for name, n_bits in results.columns if name == source)
    curves = [
        map_curve(
            line.shown, lengths, [results.cells.get((line.row.name, (source, n))) for n in lengths]
        )
        for line in lines
    ]
    bits = Axis("bits of the code", ticks=lengths)
    return Panel(results.source(source).shown, bits, MAP, with_points(curves))


def map_over_powers(results: Results, source: str) -> Panel:
    """A line per code length."""
    powers = results.table.powers
    lengths = [n_bits for name, n_bits in results.columns if name == source]
    rows = [line.row.name for line in results.table.lines]
    curves = [
        map_curve(
            f"{n_bits} bits", powers, [results.cells.get((row, (source, n_bits))) for row in rows]
        )
        for n_bits in lengths
    ]
    title = results.source(source).shown + (f", {lengths[0]} bits" if len(lengths) == 1 else "")
    gamma = Axis("γ (power of the hinge; all weights are 1)", ticks=powers)
    return Panel(title, gamma, MAP, with_points(curves), values=len(lengths) == 1)


def map_curve(name: str, x: Sequence[int], cells: Sequence[Cell | None]) -> Curve:
    """Means with their standard deviations over the seeds; what failed is left out."""
    points = [(at, cell.map) for at, cell in zip(x, cells, strict=True) if cell]
    return Curve(
        name,
        np.array([at for at, _ in points], dtype=np.int64),
        np.array([summary.mean for _, summary in points], dtype=float),
        np.array([summary.deviation or 0.0 for _, summary in points], dtype=float),
    )


def score_panels(
    results: Results,
    lines: Sequence[Line],
    n_bits: int,
    curve_of: Callable[[str, Cell], Curve],
    panel_of: Callable[[str, Sequence[Curve]], Panel],
) -> list[Panel]:
    """A panel per source, with a line per method."""
    panels = []
    for source in results.sources:
        cells = ((line.shown, (line.row.name, (source.name, n_bits))) for line in lines)
        curves = [
            curve_of(shown, results.cells[key]) for shown, key in cells if key in results.cells
        ]
        panels.append(panel_of(f"{source.shown}, {n_bits} bits", with_points(curves)))
    return panels


def recall_precision(name: str, cell: Cell) -> Curve:
    values = cell.curves
    return Curve(name, np.array(values["recall"], float), np.array(values["precision"], float))


def precision_at_n(name: str, cell: Cell) -> Curve:
    values = cell.curves
    return Curve(name, np.array(values["n"]), np.array(values["precision_at_n"], float))


def training_panels(
    results: Results, lines: Sequence[Line], n_bits: int, histories: Histories
) -> list[Panel]:
    """Loss, active triplets and validation MAP, one beneath the other for each source."""
    measures: tuple[tuple[Axis, Callable[[History], Float[np.ndarray, " epochs"]]], ...] = (
        # Losses have units of their own, so each is compared with its own first epoch.
        (Axis("loss (1: in the first epoch)"), lambda history: relative(history.loss)),
        (
            Axis("triplets within the margin (%)", percent=True),
            lambda history: history.active_share,
        ),
        (Axis("MAP on held-out training rows"), lambda history: history.validation_map),
    )
    panels = []
    for axis, values_of in measures:
        row = []
        for source in results.sources:
            curves = [
                measured(line.shown, values_of(histories[key]))
                for line in lines
                if (key := (line.row.name, source.name, n_bits)) in histories
            ]
            row.append(Panel(f"{source.shown}, {n_bits} bits", EPOCH, axis, with_points(curves)))
        if any(panel.curves for panel in row):
            panels += row
    return panels


def relative(loss: Float[np.ndarray, " epochs"]) -> Float[np.ndarray, " epochs"]:
    return loss / loss[0] if loss[0] > 0 else loss


def measured(name: str, values: Float[np.ndarray, " epochs"]) -> Curve:
    """The epochs in which something was measured."""
    epochs = np.flatnonzero(~np.isnan(values))
    return Curve(name, epochs + 1, values[epochs])


def with_points(curves: Iterable[Curve]) -> list[Curve]:
    return [curve for curve in curves if len(curve.x)]
