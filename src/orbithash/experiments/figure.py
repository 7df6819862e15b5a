"""Curves as SVG: one look for every report, in colours that colour-blind readers can tell apart."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Literal

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
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # colour is never the only difference

Theme = Literal["light", "dark"]
INK = {"light": "#1b1f24", "dark": "#e6e8eb"}
GRID = {"light": "#d9dde3", "dark": "#3a414b"}
PAPER = {"light": "#ffffff", "dark": "#1a1e24"}


@dataclass(frozen=True, eq=False)
class Curve:
    """One method's line; the first curves of a figure are drawn strongest."""

    name: str
    x: Float[np.ndarray, " points"] | Int[np.ndarray, " points"]
    y: Float[np.ndarray, " points"]


def score_curves(name: str, scores: Scores) -> tuple[Curve, Curve]:
    """Precision over recall by Hamming radius, and over the number of images returned."""
    by_radius = scores.precision_recall
    found = ~np.isnan(by_radius.precision)  # a radius within which no query finds anything
    at = scores.precision_at
    return (
        Curve(name, by_radius.recall[found], by_radius.precision[found]),
        Curve(name, np.array(list(at)), np.array(list(at.values()))),
    )


def precision_recall_figure(
    curves: Sequence[Curve], *, n_bits: int, strong: int = 2, theme: Theme = "light"
) -> str:
    """Precision over recall, one point per Hamming radius, as the text of an SVG file."""
    figure, axes = _empty_figure(f"Precision and recall, {n_bits} bits", theme)
    _draw(axes, curves, strong=strong, theme=theme)
    axes.set(xlabel="recall (% of all related images found)", xlim=(-0.02, 1.02))
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    return _finish(figure, axes, y_label="precision (% of found images related)", theme=theme)


def precision_at_figure(
    curves: Sequence[Curve], *, n_bits: int, strong: int = 2, theme: Theme = "light"
) -> str:
    """Precision among the N nearest images, as the text of an SVG file."""
    figure, axes = _empty_figure(f"Precision at N, {n_bits} bits", theme)
    _draw(axes, curves, strong=strong, theme=theme)
    axes.set(xlabel="N (images returned, nearest first; log scale)", xscale="log")
    axes.xaxis.set_major_formatter("{x:.0f}")
    return _finish(figure, axes, y_label="precision (% of N images related)", theme=theme)


def _empty_figure(title: str, theme: Theme) -> tuple[Figure, Axes]:
    # A Figure of its own rather than pyplot's: no window system, no global list of open figures.
    figure = Figure(figsize=(5.4, 4.6), layout="constrained", facecolor=PAPER[theme])
    axes = figure.add_subplot(facecolor=PAPER[theme])
    axes.set_title(title, loc="left", color=INK[theme], fontsize=12, fontweight="bold")
    return figure, axes


def _draw(axes: Axes, curves: Sequence[Curve], *, strong: int, theme: Theme) -> None:
    colours = (*OKABE_ITO, INK[theme])
    strong = min(strong, len(colours) // 2)
    for place, (curve, marker) in enumerate(zip(curves, cycle(MARKERS), strict=False)):
        is_strong = place < strong
        # When the colours run out, those of the strong curves are not used again.
        again, weak = divmod(place - strong, len(colours) - strong)
        axes.plot(
            curve.x,
            curve.y,
            label=curve.name,
            color=colours[place] if is_strong else colours[strong + weak],
            marker=marker,
            markersize=5 if is_strong else 3.5,
            # A marker on every point of a fine curve would hide the line.
            markevery=max(1, len(curve.x) // 12),
            linewidth=2.4 if is_strong else 1.3,
            linestyle="-" if is_strong else ("--" if again == 0 else ":"),
            zorder=3 if is_strong else 2,
        )


def _finish(figure: Figure, axes: Axes, *, y_label: str, theme: Theme) -> str:
    axes.set_ylabel(y_label)
    axes.set_ylim(-0.02, 1.04)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(color=GRID[theme], linewidth=0.7)
    axes.tick_params(which="both", colors=INK[theme])
    axes.xaxis.label.set_color(INK[theme])
    axes.yaxis.label.set_color(INK[theme])
    axes.spines[["top", "right"]].set_visible(False)
    for spine in axes.spines.values():
        spine.set_color(INK[theme])
    # Beneath the axes, where it covers no data.
    figure.legend(
        loc="outside lower center", ncols=4, frameon=False, labelcolor=INK[theme], fontsize=9
    )
    text = io.StringIO()
    # A fixed salt and no date: the same curves give the same bytes.
    with mpl.rc_context({"svg.hashsalt": "orbithash"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()
