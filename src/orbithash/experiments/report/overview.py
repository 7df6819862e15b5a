"""The committed tables in one short table and one picture: classes, new classes and look.

The table has a row for the paper's method, for its best rivals and for ours. The picture shows
some of them over the number of bits.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from orbithash.experiments.report.figure import Axis, Curve, Panel, draw_panels, follow_page, to_svg
from orbithash.experiments.report.markdown import EMPTY, as_markdown_table, beside_figure
from orbithash.experiments.tables.results import Cell, Results
from orbithash.experiments.tables.results_json import read_results

TABLES = ("main", "three_scores", "unseen")
ROWS = {
    "itq": "ITQ, no labels",
    "lda-itq": "LDA-ITQ, fitted",
    "dsh": "DSH",
    "triplet": "Triplet",
    "orthohash": "OrthoHash",
    "order-aware-paper": "Order-aware, the paper's recipe",
    "order-aware": "Order-aware, layers alone",
    "two-paths": "**Order-aware, the default**",
}
DRAWN = ("two-paths", "order-aware", "lda-itq", "itq", "orthohash", "triplet")
UNSEEN_SOURCE = "cub200_2011-fixed-halves"
LENGTHS = (16, 32, 64)
SEEDS = 5
SHOWN = (16, 64)  # of the class MAP, in the table


def class_map(cell: Cell) -> float | None:
    return cell.map.mean


def look(cell: Cell) -> float | None:
    return cell.mean_of("look")


Score = Callable[[Cell], float | None]
Figure = tuple[str, Score]  # source and score
CUB, VOC = ("cub200_2011", class_map), ("voc2007", class_map)
TRANSFER = (UNSEEN_SOURCE, class_map)
PANELS: Mapping[str, Figure] = {
    "Classes: CUB-200-2011": CUB,
    "Classes: VOC2007": VOC,
    "New classes: CUB-200-2011, 101 to 200": TRANSFER,
    "Look: VOC2007": ("voc2007", look),
}


def overview_table(folder: Path) -> str:
    """Return the Markdown of the short table."""
    tables = read_tables(folder)
    columns: dict[str, tuple[Figure, int]] = {
        **{f"CUB-200-2011, {n} bits": (CUB, n) for n in SHOWN},
        **{f"VOC2007, {n} bits": (VOC, n) for n in SHOWN},
        "new classes, 64 bits": (TRANSFER, 64),
        "look, CUB-200-2011": (("cub200_2011", look), 64),
        "look, VOC2007": (("voc2007", look), 64),
    }
    lines = [["method", *columns]]
    for row, title in ROWS.items():
        figures = (
            shown_figure(figure[1], find(tables, row, figure, n)) for figure, n in columns.values()
        )
        lines.append([title, *figures])
    return f"{how_to_read()}\n\n{as_markdown_table(lines)}"


def shown_figure(score: Score, found: tuple[float, int] | None) -> str:
    """Format a mean; with its number of seeds if these are fewer than usual."""
    if found is None:
        return EMPTY
    mean, n_seeds = found
    text = beside_figure("look" if score is look else "map", mean)
    return text if n_seeds >= SEEDS else f"{text} ({n_seeds})"


def how_to_read() -> str:
    return (
        "MAP of Hamming ranking for classes that trained; for CUB-200-2011's classes 101 to 200 in "
        "themselves, with the others for training; and the share of the ten images nearest by "
        f"features that are among the ten nearest by code (64 bits). Means over {SEEDS} seeds, or "
        f"over so many as are in parentheses. {EMPTY}: not run."
    )


def overview_picture(folder: Path) -> str:
    """Return an SVG with a panel for each score, and a line for some of the methods."""
    tables = read_tables(folder)
    panels = []
    for title, figure in PANELS.items():
        curves = [curve for row in DRAWN if (curve := curve_of(tables, row, figure)) is not None]
        is_look = figure[1] is look
        y = Axis("of the ten nearest, kept (%)" if is_look else "MAP", percent=is_look)
        panels.append(Panel(title, Axis("bits of the code", ticks=LENGTHS), y, curves))
    names = [plain_title(row) for row in DRAWN]
    drawn = [panel for panel in panels if panel.curves]
    return follow_page(to_svg(draw_panels(drawn, names=names, strong=1, columns=2)))


def curve_of(tables: Mapping[str, Results], row: str, figure: Figure) -> Curve | None:
    found = ((n_bits, find(tables, row, figure, n_bits)) for n_bits in LENGTHS)
    points = [(n_bits, mean[0]) for n_bits, mean in found if mean is not None]
    if not points:
        return None
    x, y = zip(*points, strict=True)
    return Curve(plain_title(row), np.array(x), np.array(y))


def plain_title(row: str) -> str:
    return ROWS[row].replace("*", "")


def find(
    tables: Mapping[str, Results], row: str, figure: Figure, n_bits: int
) -> tuple[float, int] | None:
    """Return a mean and its number of seeds, from the first of the tables with the most seeds."""
    source, score = figure
    cells = (results.cells.get((row, (source, n_bits))) for results in tables.values())
    known = [
        (value, len(cell.maps)) for cell in cells if cell and (value := score(cell)) is not None
    ]
    return max(known, key=lambda found: found[1], default=None)


def read_tables(folder: Path) -> dict[str, Results]:
    files = {name: folder / name / "results.json" for name in TABLES}
    return {name: read_results(file) for name, file in files.items() if file.exists()}
