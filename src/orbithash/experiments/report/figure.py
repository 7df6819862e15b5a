"""Line plots in one or several panels, in one style that suits colour-blind readers too."""

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

# Okabe and Ito, "Color Universal Design", 2008: without the yellow, which is invisible on white,
# with a grey, and with INK instead of black, so that it is visible on a dark page too.
OKABE_ITO = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999")
# Lines differ without colour too.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("--", "-.", ":")

# For light and dark pages; `follow_page` switches between them.
INK, INK_ON_DARK = "#1b1f24", "#e6e8eb"
GRID, GRID_ON_DARK = "#d9dde3", "#3a414b"
PAPER, PAPER_ON_DARK = "#ffffff", "#1a1e24"
FONTS = "'DejaVu Sans', Verdana, Arial, sans-serif"

PRECISION_LIMITS = (-0.02, 1.04)


@dataclass(frozen=True, eq=False)
class Curve:
    """The line of one method, with an optional spread of each point."""

    name: str
    x: Float[np.ndarray, " points"] | Int[np.ndarray, " points"]
    y: Float[np.ndarray, " points"]
    spread: Float[np.ndarray, " points"] | None = None


@dataclass(frozen=True)
class Axis:
    """One axis of a panel."""

    label: str
    limits: tuple[float, float] | None = None
    percent: bool = False  # values from 0 to 1, labelled in percent
    log: bool = False
    ticks: tuple[int, ...] | None = None


@dataclass(frozen=True, eq=False)
class Panel:
    """A pair of axes with its lines."""

    title: str
    x: Axis
    y: Axis
    curves: Sequence[Curve]
    values: bool = False  # write the value beside each point


def draw_panels(
    panels: Sequence[Panel],
    *,
    names: Sequence[str] | None = None,
    strong: int = 2,
    columns: int | None = None,
) -> Figure:
    """Draw all panels in a grid above one legend.

    Lines of the same name have the same style. `names` defaults to the order in the panels; the
    first `strong` of them are drawn thickest.
    """
    if names is None:
        names = list(dict.fromkeys(curve.name for panel in panels for curve in panel.curves))
    n_columns = min(columns or len(panels), len(panels))
    n_rows = -(-len(panels) // n_columns)
    present = {curve.name for panel in panels for curve in panel.curves}
    legend = [name for name in names if name in present] if len(present) > 1 else []
    per_row = entries_per_row(legend, width=5.4 * n_columns)
    legend_height = 0.2 * -(-len(legend) // per_row)
    # Not pyplot's figure: no window system, no global list of open figures.
    figure = Figure(
        figsize=(5.4 * n_columns, 4.0 * n_rows + legend_height),
        layout="constrained",
        facecolor=PAPER,
    )
    styles = line_styles(names, strong=strong)
    for number, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(n_rows, n_columns, number, facecolor=PAPER)
        draw_panel(axes, panel, styles)
    if legend:
        lines = {str(line.get_label()): line for axes in figure.axes for line in axes.get_lines()}
        # Below the axes, where it covers no data.
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


def to_svg(figure: Figure) -> str:
    """Return the text of an SVG file; the same figure gives the same text.

    Text stays text: it can be searched and copied, and is a third of the size of outlines.
    """
    text = io.StringIO()
    # A fixed salt and no date: the same curves give the same bytes.
    with mpl.rc_context({"svg.hashsalt": "orbithash", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    # Matplotlib lists every font it knows in every text element.
    return re.sub(r"'DejaVu Sans',[^;\"]*sans-serif", FONTS, text.getvalue())


def follow_page(svg: str) -> str:
    """Let the picture switch to dark colours with the page that shows it."""
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
    """Return the content of a PNG file in print resolution."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=160, metadata={"Software": None})
    return content.getvalue()


def score_curves(name: str, scores: Scores) -> tuple[Curve, Curve]:
    """Return precision over recall by Hamming radius, and precision at N."""
    by_radius = scores.precision_recall
    is_defined = ~np.isnan(by_radius.precision)  # NaN: no query has a result within the radius
    at = scores.precision_at
    return (
        Curve(name, by_radius.recall[is_defined], by_radius.precision[is_defined]),
        Curve(name, np.array(list(at)), np.array(list(at.values()))),
    )


def precision_recall_panel(title: str, curves: Sequence[Curve]) -> Panel:
    """Plot precision over recall, one point per Hamming radius."""
    return Panel(
        title,
        Axis("recall (% of all related images found)", limits=(-0.02, 1.02), percent=True),
        Axis("precision (% of found images related)", limits=PRECISION_LIMITS, percent=True),
        curves,
    )


def precision_at_panel(title: str, curves: Sequence[Curve]) -> Panel:
    return Panel(
        title,
        Axis("N (images returned, nearest first; log scale)", log=True),
        Axis("precision (% of N images related)", limits=PRECISION_LIMITS, percent=True),
        curves,
    )


def precision_recall_figure(curves: Sequence[Curve], *, n_bits: int, strong: int = 2) -> str:
    """Return the SVG of precision over recall, one point per Hamming radius."""
    panel = precision_recall_panel(f"Precision and recall, {n_bits} bits", curves)
    return to_svg(draw_panels([panel], strong=strong))


def precision_at_figure(curves: Sequence[Curve], *, n_bits: int, strong: int = 2) -> str:
    """Return the SVG of the precision among the N nearest images."""
    panel = precision_at_panel(f"Precision at N, {n_bits} bits", curves)
    return to_svg(draw_panels([panel], strong=strong))


def entries_per_row(names: Sequence[str], *, width: float) -> int:
    """Return how many entries of a legend fit into a width in inches."""
    longest = max((len(name) for name in names), default=1)
    return max(1, min(len(names) or 1, int(width / (0.65 + 0.072 * longest))))


def line_styles(names: Iterable[str], *, strong: int) -> dict[str, dict[str, Any]]:
    """Return the style of each line: strong ones thick and solid, others thin and dashed."""
    colours = (*OKABE_ITO, INK)
    strong = min(strong, len(colours) // 2)
    styles: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(names):
        if number < strong:
            style = {"color": colours[number], "marker": MARKERS[number], "linestyle": "-"}
            styles[name] = style | {"linewidth": 2.4, "markersize": 5.5, "zorder": 4}
            continue
        # The colours of the strong lines are not reused. Eight markers and three dashes give 24
        # combinations, so that lines differ without colour too; a reused colour gets another
        # marker.
        weak = (number - strong) % (len(colours) - strong)
        styles[name] = {
            "color": colours[strong + weak],
            "marker": MARKERS[number % len(MARKERS)],
            "linestyle": DASHES[number % len(DASHES)],
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
    style_axes(axes, panel)


def style_axes(axes: Axes, panel: Panel) -> None:
    """Set labels, scales, ticks, grid and colours."""
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
