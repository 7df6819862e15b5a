"""The figures of a table: MAP over bits or over γ, precision and recall, precision at N, training.

Each source has a panel, side by side. If a table has rows that are not in the paper, each figure is
drawn twice: with the paper's rows, and (`_more`) with the reference and the other rows.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from orbithash.encoders import Epoch
from orbithash.encoders.runs.run_folder import LOG, read_log
from orbithash.experiments.report.figure import (
    Axis,
    Curve,
    Panel,
    draw_panels,
    precision_at_panel,
    precision_recall_panel,
    to_png,
    to_svg,
)
from orbithash.experiments.tables.plan import PlannedRun
from orbithash.experiments.tables.results import Cell, Results
from orbithash.experiments.tables.run import run_folder
from orbithash.experiments.tables.spec import TableRow
from orbithash.files import whole_file

MAP = Axis("MAP (expected over the order of ties)")
EPOCH = Axis("epoch")
MEASURES = ("loss", "active_share", "validation_map")

# The file names of any table; other files in a folder of figures are not ours.
OUR_FILES = re.compile(
    r"(map_over_(bits|gamma)|(precision_recall|precision_at|training)_\d+_bits)(_more)?\.(svg|png)"
)


@dataclass(frozen=True, eq=False)
class TableFigure:
    """A figure before it is drawn."""

    name: str  # of its files
    title: str
    panels: tuple[Panel, ...]
    names: tuple[str, ...]  # of all lines, so that each has the same style in every such figure
    columns: int

    def draw(self) -> Figure:
        return draw_panels(self.panels, names=self.names, strong=1, columns=self.columns)


@dataclass(frozen=True, eq=False)
class History:
    """The measures of each epoch, NaN where there is none; means over the seeds."""

    loss: Float[np.ndarray, " epochs"]
    active_share: Float[np.ndarray, " epochs"]
    validation_map: Float[np.ndarray, " epochs"]


Histories = Mapping[tuple[str, str, int], History]  # by row, source and code length


def draw_table_figures(results: Results, histories: Histories) -> list[TableFigure]:
    """Return every figure that the table has data for, most important first."""
    figures = list(map_figures(results))
    for n_bits in dict.fromkeys(n_bits for _, n_bits in results.columns):
        for rows, suffix in row_groups(results):
            figures += [
                table_figure(results, name + suffix, title, rows, panels)
                for name, title, panels in (
                    (
                        f"precision_recall_{n_bits}_bits",
                        f"Precision and recall, {n_bits} bits",
                        score_panels(
                            results, rows, n_bits, recall_precision, precision_recall_panel
                        ),
                    ),
                    (
                        f"precision_at_{n_bits}_bits",
                        f"Precision at N, {n_bits} bits",
                        score_panels(results, rows, n_bits, precision_at_n, precision_at_panel),
                    ),
                    (
                        f"training_{n_bits}_bits",
                        f"Training, {n_bits} bits",
                        training_panels(results, rows, n_bits, histories),
                    ),
                )
            ]
    return [figure for figure in figures if any(panel.curves for panel in figure.panels)]


def write_figures(figures: Sequence[TableFigure], folder: Path) -> None:
    """Write each as SVG and PNG, and remove earlier figures of a table; other files stay."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        if OUR_FILES.fullmatch(file.name):
            file.unlink()
    for figure in figures:
        drawn = figure.draw()
        for suffix, content in ((".svg", to_svg(drawn).encode()), (".png", to_png(drawn))):
            with whole_file(folder / f"{figure.name}{suffix}") as opened:
                opened.write(content)


def read_histories(runs: Sequence[PlannedRun], out: Path) -> Histories:
    """Read the histories of the rows that train a network; hashers have none."""
    logs: dict[tuple[str, str, int], list[list[Epoch]]] = {}
    for run in runs:
        file = run_folder(run, out) / LOG
        if run.max_epochs and file.exists():
            logs.setdefault((run.row, run.source.name, run.n_bits), []).append(read_log(file))
    return {key: mean_history(seed_logs) for key, seed_logs in logs.items()}


def mean_history(logs: Sequence[Sequence[Epoch]]) -> History:
    """Average several logs, over the epochs that all of them have."""
    n_epochs = min(len(log) for log in logs)
    means = {}
    for measure in MEASURES:
        # numpy reads None, where nothing was measured, as NaN.
        values = np.array(
            [[getattr(epoch, measure) for epoch in log[:n_epochs]] for log in logs], dtype=float
        )
        means[measure] = values.mean(axis=0)
    return History(**means)


def row_groups(results: Results) -> list[tuple[list[TableRow], str]]:
    """Return the paper's rows, and the reference with the others, each with a file suffix."""
    rows = results.table.rows
    others = [row for row in rows if not row.in_paper]
    reference = [row for row in rows if row.name == results.table.reference]
    groups = [([row for row in rows if row.in_paper], "")]
    return [*groups, (reference + others, "_more")] if others else groups


def table_figure(
    results: Results, name: str, title: str, rows: Sequence[TableRow], panels: Iterable[Panel]
) -> TableFigure:
    """Put the reference first among the names, so that it is drawn strongest."""
    reference = results.display_name(results.table.reference)
    others = (row.display_name for row in rows if row.display_name != reference)
    return TableFigure(name, title, tuple(panels), (reference, *others), len(results.sources))


def map_figures(results: Results) -> Iterable[TableFigure]:
    """Plot MAP over γ or over the number of bits; yield nothing if the table varies neither."""
    if results.table.powers:
        lengths = dict.fromkeys(f"{n_bits} bits" for _, n_bits in results.columns)
        panels = tuple(map_over_powers(results, source.name) for source in results.sources)
        yield TableFigure("map_over_gamma", "MAP over γ", panels, tuple(lengths), len(panels))
    elif len({n_bits for _, n_bits in results.columns}) > 1:
        for rows, suffix in row_groups(results):
            yield table_figure(
                results,
                f"map_over_bits{suffix}",
                "MAP over the number of bits",
                rows,
                (map_over_bits(results, rows, source.name) for source in results.sources),
            )


def map_over_bits(results: Results, rows: Sequence[TableRow], source: str) -> Panel:
    """Plot one line per method."""
    lengths = tuple(n_bits for name, n_bits in results.columns if name == source)
    curves = [
        map_curve(
            row.display_name, lengths, [results.cells.get((row.name, (source, n))) for n in lengths]
        )
        for row in rows
    ]
    bits = Axis("bits of the code", ticks=lengths)
    return Panel(results.source(source).display_name, bits, MAP, with_points(curves))


def map_over_powers(results: Results, source: str) -> Panel:
    """Plot one line per code length."""
    powers = results.table.powers
    lengths = [n_bits for name, n_bits in results.columns if name == source]
    rows = [row.name for row in results.table.rows]
    curves = [
        map_curve(
            f"{n_bits} bits", powers, [results.cells.get((row, (source, n_bits))) for row in rows]
        )
        for n_bits in lengths
    ]
    title = results.source(source).display_name
    if len(lengths) == 1:
        title += f", {lengths[0]} bits"
    gamma = Axis("γ (power of the hinge; all weights are 1)", ticks=powers)
    return Panel(title, gamma, MAP, with_points(curves), values=len(lengths) == 1)


def map_curve(name: str, x: Sequence[int], cells: Sequence[Cell | None]) -> Curve:
    """Plot means with their standard deviations over the seeds; missing cells have no point."""
    points = [(x_value, cell.map) for x_value, cell in zip(x, cells, strict=True) if cell]
    return Curve(
        name,
        np.array([x_value for x_value, _ in points], dtype=np.int64),
        np.array([summary.mean for _, summary in points], dtype=float),
        np.array([summary.deviation or 0.0 for _, summary in points], dtype=float),
    )


def score_panels(
    results: Results,
    rows: Sequence[TableRow],
    n_bits: int,
    make_curve: Callable[[str, Cell], Curve],
    make_panel: Callable[[str, Sequence[Curve]], Panel],
) -> list[Panel]:
    """Return one panel per source, with a line per method."""
    panels = []
    for source in results.sources:
        keys = ((row.display_name, (row.name, (source.name, n_bits))) for row in rows)
        curves = [
            make_curve(name, results.cells[key]) for name, key in keys if key in results.cells
        ]
        panels.append(make_panel(f"{source.display_name}, {n_bits} bits", with_points(curves)))
    return panels


def recall_precision(name: str, cell: Cell) -> Curve:
    values = cell.curves
    return Curve(name, np.array(values["recall"], float), np.array(values["precision"], float))


def precision_at_n(name: str, cell: Cell) -> Curve:
    values = cell.curves
    return Curve(name, np.array(values["n"]), np.array(values["precision_at_n"], float))


def training_panels(
    results: Results, rows: Sequence[TableRow], n_bits: int, histories: Histories
) -> list[Panel]:
    """Plot loss, active triplets and validation MAP: one row of panels each, with all sources."""
    measures: tuple[tuple[Axis, Callable[[History], Float[np.ndarray, " epochs"]]], ...] = (
        # Losses have different units, so each is divided by its value in the first epoch.
        (Axis("loss (1: in the first epoch)"), lambda history: relative(history.loss)),
        (
            Axis("triplets within the margin (%)", percent=True),
            lambda history: history.active_share,
        ),
        (Axis("MAP on held-out training rows"), lambda history: history.validation_map),
    )
    panels = []
    for axis, select in measures:
        row_of_panels = []
        for source in results.sources:
            curves = [
                epoch_curve(row.display_name, select(histories[key]))
                for row in rows
                if (key := (row.name, source.name, n_bits)) in histories
            ]
            title = f"{source.display_name}, {n_bits} bits"
            row_of_panels.append(Panel(title, EPOCH, axis, with_points(curves)))
        if any(panel.curves for panel in row_of_panels):
            panels += row_of_panels
    return panels


def relative(loss: Float[np.ndarray, " epochs"]) -> Float[np.ndarray, " epochs"]:
    return loss / loss[0] if loss[0] > 0 else loss


def epoch_curve(name: str, values: Float[np.ndarray, " epochs"]) -> Curve:
    """Plot the epochs that were measured, numbered from 1."""
    epochs = np.flatnonzero(~np.isnan(values))
    return Curve(name, epochs + 1, values[epochs])


def with_points(curves: Iterable[Curve]) -> list[Curve]:
    return [curve for curve in curves if len(curve.x)]
