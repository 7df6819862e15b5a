"""Precision over recall, and precision among the N nearest."""

from collections.abc import Sequence

import numpy as np

from orbithash.experiments.figure import Axis, Curve, Panel, draw, to_svg
from orbithash.metrics.scores import Scores

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
