"""Lines in one or several panels: one look for every report, for colour-blind readers too."""

import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from orbithash.metrics.scores import Scores

# Okabe and Ito, "Color Universal Design", 2008: without the yellow that vanishes on white, with a
# grey, and with its black drawn in the page's ink, so that it shows on a dark page too.
OKABE_ITO = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999")
# Colour is never the only difference.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("--", "-.", ":")

# On a light page and on a dark one; `follow_page` exchanges them.
INK, INK_ON_DARK = "#1b1f24", "#e6e8eb"
GRID, GRID_ON_DARK = "#d9dde3", "#3a414b"
PAPER, PAPER_ON_DARK = "#ffffff", "#1a1e24"
FONTS = "'DejaVu Sans', Verdana, Arial, sans-serif"


@dataclass(frozen=True, eq=False)
class Curve:
    """One method's line, with the spread of each point if it has one."""

    name: str
    x: Float[np.ndarray, " points"] | Int[np.ndarray, " points"]
    y: Float[np.ndarray, " points"]
    spread: Float[np.ndarray, " points"] | None = None


@dataclass(frozen=True)
class Axis:
    """What is measured along a side of a panel."""

    label: str
    limits: tuple[float, float] | None = None
    percent: bool = False  # numbers from 0 to 1, shown as percent
    log: bool = False
    ticks: tuple[int, ...] | None = None


@dataclass(frozen=True, eq=False)
class Panel:
    """One pair of axes with its lines."""

    title: str
    x: Axis
    y: Axis
    curves: Sequence[Curve]
    values: bool = False  # written beside the points


def draw(
    panels: Sequence[Panel],
    *,
    names: Sequence[str] | None = None,
    strong: int = 2,
    columns: int | None = None,
) -> Figure:
    """All panels in a grid over one legend.

    A line looks the same wherever its name is the same. The first `strong` of the names, in the
    order of the panels unless it is given, are drawn strongest.
    """
    if names is None:
        names = list(dict.fromkeys(curve.name for panel in panels for curve in panel.curves))
    n_columns = min(columns or len(panels), len(panels))
    n_rows = -(-len(panels) // n_columns)
    present = {curve.name for panel in panels for curve in panel.curves}
    legend = [name for name in names if name in present] if len(present) > 1 else []
    per_row = entries_per_row(legend, width=5.4 * n_columns)
    legend_height = 0.2 * -(-len(legend) // per_row)
    # A Figure of its own rather than pyplot's: no window system, no global list of open figures.
    figure = Figure(
        figsize=(5.4 * n_columns, 4.0 * n_rows + legend_height),
        layout="constrained",
        facecolor=PAPER,
    )
    styles = line_styles(names, strong=strong)
    for place, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(n_rows, n_columns, place, facecolor=PAPER)
        draw_panel(axes, panel, styles)
    if legend:
        lines = {str(line.get_label()): line for axes in figure.axes for line in axes.get_lines()}
        # Beneath the axes, where it covers no data.
        figure.legend(
            [lines[name] for name in legend],
            legend,
            loc="outside lower center",
            ncols=per_row,
            frameon=False,
            labelcolor=INK,
            fontsize=9,
            handlelength=3.2,  # long enough for a dash and its marker
        )
    return figure


def entries_per_row(names: Sequence[str], *, width: float) -> int:
    """How many entries of a legend fit into so many inches."""
    longest = max((len(name) for name in names), default=1)
    return max(1, min(len(names) or 1, int(width / (0.65 + 0.072 * longest))))


def line_styles(names: Iterable[str], *, strong: int) -> dict[str, dict[str, Any]]:
    """How each line is drawn: the strong ones thick and whole, the others thin and broken."""
    colours = (*OKABE_ITO, INK)
    strong = min(strong, len(colours) // 2)
    styles: dict[str, dict[str, Any]] = {}
    for place, name in enumerate(names):
        if place < strong:
            look = {"color": colours[place], "marker": MARKERS[place], "linestyle": "-"}
            styles[name] = look | {"linewidth": 2.4, "markersize": 5.5, "zorder": 4}
            continue
        # The colours of the strong lines are not used again. Eight markers and three dashes come
        # together again after 24 lines, so that lines differ without colour too; and a colour that
        # is used twice has another marker then.
        weak = (place - strong) % (len(colours) - strong)
        styles[name] = {
            "color": colours[strong + weak],
            "marker": MARKERS[place % len(MARKERS)],
            "linestyle": DASHES[place % len(DASHES)],
            "linewidth": 1.4,
            "markersize": 4,
            "zorder": 3,
        }
    return styles


def draw_panel(axes: Axes, panel: Panel, styles: dict[str, dict[str, Any]]) -> None:
    axes.set_title(panel.title, loc="left", color=INK, fontsize=12, fontweight="bold")
    for curve in panel.curves:
        style = styles[curve.name]
        # A marker on every point of a fine curve would hide the line.
        every = max(1, len(curve.x) // 12)
        axes.plot(curve.x, curve.y, label=curve.name, markevery=every, **style)
        if curve.spread is not None:
            low, high = curve.y - curve.spread, curve.y + curve.spread
            axes.fill_between(curve.x, low, high, color=style["color"], alpha=0.15, linewidth=0)
        if panel.values:
            for x, y in zip(curve.x, curve.y, strict=True):
                axes.annotate(
                    f"{y:.3f}",
                    (x, y),
                    xytext=(0, 8),
                    textcoords="offset points",
                    ha="center",
                    fontsize=9,
                    color=INK,
                    bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1},
                    zorder=5,
                )
    if panel.values:
        axes.margins(x=0.12, y=0.2)
    dress(axes, panel)


def dress(axes: Axes, panel: Panel) -> None:
    """Scales, units, grid and ink."""
    axes.set(xlabel=panel.x.label, ylabel=panel.y.label)
    if panel.x.log:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:.0f}")
    if panel.x.ticks is not None:
        axes.set_xticks(panel.x.ticks, labels=[str(tick) for tick in panel.x.ticks])
        axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    for side, axis in ((panel.x, axes.xaxis), (panel.y, axes.yaxis)):
        if side.percent:
            axis.set_major_formatter(PercentFormatter(1.0))
        axis.label.set_color(INK)
    if panel.x.limits is not None:
        axes.set_xlim(panel.x.limits)
    if panel.y.limits is not None:
        axes.set_ylim(panel.y.limits)
    axes.grid(color=GRID, linewidth=0.7)
    axes.tick_params(which="both", colors=INK)
    axes.spines[["top", "right"]].set_visible(False)
    for spine in axes.spines.values():
        spine.set_color(INK)


def to_svg(figure: Figure) -> str:
    """The text of an SVG file; the same figure gives the same text.

    Words stay words, which can be found and copied and need a third of the space of outlines.
    """
    text = io.StringIO()
    # A fixed salt and no date: the same curves give the same bytes.
    with mpl.rc_context({"svg.hashsalt": "orbithash", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    # Matplotlib names every font it knows, at every word.
    return re.sub(r"'DejaVu Sans',[^;\"]*sans-serif", FONTS, text.getvalue())


def follow_page(svg: str) -> str:
    """The same picture, which turns dark with the page that shows it."""
    colours = (
        ("ink", INK, INK_ON_DARK),
        ("grid", GRID, GRID_ON_DARK),
        ("paper", PAPER, PAPER_ON_DARK),
    )
    for name, light, _ in colours:
        svg = svg.replace(light, f"var(--{name})")
    on_light = "".join(f"--{name}:{light};" for name, light, _ in colours)
    on_dark = "".join(f"--{name}:{dark};" for name, _, dark in colours)
    style = f":root{{{on_light}}}@media(prefers-color-scheme:dark){{:root{{{on_dark}}}}}"
    return svg.replace("<defs>", f"<defs><style>{style}</style>", 1)


def to_png(figure: Figure) -> bytes:
    """The content of a PNG file, fine enough to be printed."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=160, metadata={"Software": None})
    return content.getvalue()


PRECISION = (-0.02, 1.04)


def score_curves(name: str, scores: Scores) -> tuple[Curve, Curve]:
    """Precision over recall by Hamming radius, and over the number of images returned."""
    by_radius = scores.precision_recall
    found = ~np.isnan(by_radius.precision)  # a radius within which no query finds anything
    at = scores.precision_at
    return (
        Curve(name, by_radius.recall[found], by_radius.precision[found]),
        Curve(name, np.array(list(at)), np.array(list(at.values()))),
    )


def precision_recall_panel(title: str, curves: Sequence[Curve]) -> Panel:
    """One point per Hamming radius."""
    return Panel(
        title,
        Axis("recall (% of all related images found)", limits=(-0.02, 1.02), percent=True),
        Axis("precision (% of found images related)", limits=PRECISION, percent=True),
        curves,
    )


def precision_at_panel(title: str, curves: Sequence[Curve]) -> Panel:
    return Panel(
        title,
        Axis("N (images returned, nearest first; log scale)", log=True),
        Axis("precision (% of N images related)", limits=PRECISION, percent=True),
        curves,
    )


def precision_recall_figure(curves: Sequence[Curve], *, n_bits: int, strong: int = 2) -> str:
    """Precision over recall, one point per Hamming radius, as the text of an SVG file."""
    panel = precision_recall_panel(f"Precision and recall, {n_bits} bits", curves)
    return to_svg(draw([panel], strong=strong))


def precision_at_figure(curves: Sequence[Curve], *, n_bits: int, strong: int = 2) -> str:
    """Precision among the N nearest images, as the text of an SVG file."""
    panel = precision_at_panel(f"Precision at N, {n_bits} bits", curves)
    return to_svg(draw([panel], strong=strong))
