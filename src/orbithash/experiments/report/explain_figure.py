"""The figure of an explanation: the ranked list above, the weight of every pair below."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from matplotlib.patches import Rectangle
from PIL import Image

from orbithash.experiments.explain import Explanation, RankedImage, WeightedPair
from orbithash.experiments.report.figure import INK, OKABE_ITO, PAPER

RELATED, UNRELATED = OKABE_ITO[1], OKABE_ITO[0]
N_BRACKETS = 3  # number of pairs marked above the list, heaviest first
MAX_LABEL = 20  # characters
QUERY_PLACE = -0.3  # left of the list, which starts at 1


def heaviest(explanation: Explanation) -> list[WeightedPair]:
    """Return all pairs, by descending share of the weighted loss."""
    return sorted(explanation.pairs, key=lambda pair: -pair.weighted)


def explanation_figure(
    explanation: Explanation, images: Mapping[int, Image.Image] | None = None
) -> Figure:
    """Draw an explanation; `images` are thumbnails by row, where available."""
    n_positives = sum(item.related for item in explanation.items)
    figure = Figure(figsize=(13, 5.9 + 0.36 * n_positives), layout="constrained", facecolor=PAPER)
    heights = (3.6, 1.6 + 0.36 * n_positives)
    top, bottom = figure.subfigures(2, 1, squeeze=False, height_ratios=heights, hspace=0.04)[:, 0]
    for part in (top, bottom):
        part.set_facecolor(PAPER)
    draw_list(top.add_subplot(), explanation, images or {})
    alone, weighted = bottom.subplots(1, 2)
    max_share = max(max(pair.alone, pair.weighted) for pair in explanation.pairs) or 1.0
    power = "hinge" + {1.0: "", 2.0: "²", 3.0: "³"}.get(
        explanation.gamma, f"^{explanation.gamma:g}"
    )
    draw_pairs(alone, explanation, "alone", f"Share of the loss alone: {power}", max_share)
    draw_pairs(
        weighted, explanation, "weighted", f"Share of the weighted loss: ΔAP · {power}", max_share
    )
    return figure


def draw_list(axes: Axes, explanation: Explanation, images: Mapping[int, Image.Image]) -> None:
    """Draw the images as boxes, nearest first, with brackets over the heaviest pairs."""
    items = explanation.items
    axes.set_title(
        f"Query {explanation.row}: {shorten(explanation.label)}\n\n",
        loc="left",
        color=INK,
        fontweight="bold",
    )
    n_related = sum(item.related for item in items)
    result = (
        f"Right: all {explanation.n_related:,} related images are nearer than any unrelated one."
        if explanation.is_right
        else f"Average precision {explanation.database_average_precision:.3f}, and "
        f"{explanation.average_precision:.3f} of this list."
    )
    summary = axes.text(
        0,
        1.01,
        f"{result}\n{len(items)} of {explanation.n_database:,} images of the database, by Hamming "
        f"distance of {explanation.n_bits} bits: {n_related} of {explanation.n_related:,} related "
        "ones, spread over their ranks, and the nearest unrelated.",
        transform=axes.transAxes,
        fontsize=9,
        linespacing=1.5,
        color=INK,
    )
    summary.set_in_layout(False)  # a long line must not make the axes narrow
    for rank, item in enumerate(items, start=1):
        draw_item(axes, rank, item, images.get(item.row))
    marked = [pair for pair in heaviest(explanation)[:N_BRACKETS] if pair.weighted > 0]
    for level, pair in enumerate(sorted(marked, key=lambda p: abs(p.positive - p.negative))):
        draw_bracket(axes, pair, level)
    left = 0.3
    if explanation.row in images:
        left = -1.0
        draw_box(axes, QUERY_PLACE, images[explanation.row], INK, "-")
        axes.text(QUERY_PLACE, -0.68, "query", ha="center", fontsize=8, color=INK)
    axes.set(xlim=(left, len(items) + 0.7), ylim=(-1.75, 2.5))
    axes.set_axis_off()


def draw_item(axes: Axes, rank: int, item: RankedImage, image: Image.Image | None) -> None:
    colour = RELATED if item.related else UNRELATED
    # Distinguishable without colour too.
    draw_box(axes, rank, image, colour, "-" if item.related else (0, (2, 1.2)))
    sign = "✓" if item.related else "✗"
    axes.text(
        rank,
        0.62 if image is not None else 0,
        sign,
        ha="center",
        va="center",
        color=colour,
        fontsize=13,
        fontweight="bold",
    )
    axes.text(rank, -0.68, f"rank {rank}", ha="center", fontsize=8, color=INK)
    axes.text(rank, -0.92, f"{item.hamming} bits", ha="center", fontsize=8, color=INK)
    axes.text(
        rank + 0.1,
        -1.05,
        shorten(item.label),
        ha="right",
        va="top",
        rotation=25,
        rotation_mode="anchor",
        fontsize=7.5,
        color=INK,
    )


def draw_box(
    axes: Axes, place: float, image: Image.Image | None, colour: str, linestyle: Any
) -> None:
    """Draw a frame with the image inside, if there is one."""
    axes.add_patch(
        Rectangle(
            (place - 0.42, -0.45),
            0.84,
            0.9,
            facecolor=PAPER,
            edgecolor=colour,
            linewidth=2.5,
            linestyle=linestyle,
        )
    )
    if image is not None:
        picture = OffsetImage(np.asarray(image), zoom=0.55)
        axes.add_artist(AnnotationBbox(picture, (place, 0), frameon=False, pad=0))


def draw_bracket(axes: Axes, pair: WeightedPair, level: int) -> None:
    """Draw a bracket between the two images of a pair; level 0 is the lowest."""
    shift = 0.14 * (level - 1)  # several may end at the same image
    left, right = (rank + shift for rank in sorted((pair.positive, pair.negative)))
    height = 1.2 + 0.45 * level
    axes.plot([left, left, right, right], [0.85, height, height, 0.85], color=INK, linewidth=1.1)
    axes.plot([left, right], [0.85, 0.85], color=INK, linestyle="", marker="v", markersize=5)
    axes.text(
        (left + right) / 2,
        height,
        f"ΔAP {pair.swap:.3f}: {pair.alone:.1%} of the loss alone, {pair.weighted:.1%} weighted",
        ha="center",
        va="center",
        fontsize=8.5,
        color=INK,
        bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 2},
    )


def draw_pairs(
    axes: Axes, explanation: Explanation, share: str, title: str, max_share: float
) -> None:
    """Draw every related image against every unrelated one; misranked pairs have a frame."""
    positives = list(dict.fromkeys(pair.positive for pair in explanation.pairs))
    negatives = list(dict.fromkeys(pair.negative for pair in explanation.pairs))
    values = np.array([getattr(pair, share) for pair in explanation.pairs])
    grid = values.reshape(len(positives), len(negatives))
    axes.imshow(grid, cmap="Blues", vmin=0, vmax=max_share, aspect="auto")
    for pair, value in zip(explanation.pairs, values, strict=True):
        position = (negatives.index(pair.negative), positives.index(pair.positive))
        ink = PAPER if value > 0.6 * max_share else INK
        axes.text(*position, f"{value:.1%}", ha="center", va="center", fontsize=8, color=ink)
        if pair.misranked:
            corner = (position[0] - 0.46, position[1] - 0.45)
            axes.add_patch(
                Rectangle(corner, 0.92, 0.9, fill=False, edgecolor=UNRELATED, linewidth=1.8)
            )
    axes.set_title(title, loc="left", color=INK, fontsize=11, fontweight="bold")
    axes.set_xticks(range(len(negatives)), [str(rank) for rank in negatives])
    axes.set_yticks(range(len(positives)), [str(rank) for rank in positives])
    axes.set_xlabel("✗ unrelated image, by rank (framed: ranked before the related one)")
    axes.set_ylabel("✓ related image, by rank")
    axes.tick_params(colors=INK, length=0)
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)
    for spine in axes.spines.values():
        spine.set_visible(False)


def shorten(label: str) -> str:
    """Cut a label to `MAX_LABEL` characters.

    >>> shorten("Black_footed_Albatross")
    'Black_footed_Albatro…'
    """
    return label if len(label) <= MAX_LABEL else label[:MAX_LABEL] + "…"
