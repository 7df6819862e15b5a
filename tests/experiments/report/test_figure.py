import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from orbithash.experiments.report.figure import (
    Axis,
    Curve,
    Panel,
    draw_panels,
    follow_page,
    line_styles,
    precision_at_figure,
    precision_recall_figure,
    to_png,
    to_svg,
)

CURVES = [
    Curve("ours", np.array([0.1, 0.5, 1.0]), np.array([1.0, 0.8, 0.2])),
    Curve("theirs", np.array([0.2, 0.6, 1.0]), np.array([0.9, 0.5, 0.2])),
]
BY_NUMBER = [Curve("ours", np.array([1, 10, 100]), np.array([1.0, 0.8, 0.2]))]
PANEL = Panel("title", Axis("bits of the code"), Axis("MAP"), CURVES)


@pytest.mark.parametrize(
    "text",
    [
        precision_recall_figure(CURVES, n_bits=16),
        precision_at_figure(BY_NUMBER, n_bits=16),
        follow_page(precision_at_figure(BY_NUMBER, n_bits=16)),
    ],
)
def test_figures_are_complete_svg_files(text):
    assert ElementTree.fromstring(text).tag.endswith("svg")


def test_the_same_curves_give_the_same_bytes():
    first = precision_recall_figure(CURVES, n_bits=16)
    assert first == precision_recall_figure(CURVES, n_bits=16)
    assert first != precision_recall_figure(CURVES[::-1], n_bits=16)
    assert to_png(draw_panels([PANEL])) == to_png(draw_panels([PANEL]))


def test_a_figure_follows_the_colours_of_its_page():
    svg = follow_page(to_svg(draw_panels([PANEL])))
    assert "fill: var(--paper)" in svg
    assert "prefers-color-scheme:dark" in svg


@pytest.mark.parametrize("strong", [1, 2])
def test_no_two_of_sixteen_lines_look_alike(strong):
    styles = line_styles([f"method {number}" for number in range(16)], strong=strong)
    # They differ without colour too, and no other line has the colour of a strong one.
    assert len({(style["linestyle"], style["marker"]) for style in styles.values()}) == 16
    colours = [style["color"] for style in styles.values()]
    assert not set(colours[:strong]) & set(colours[strong:])


def test_a_line_looks_the_same_in_every_panel_and_is_in_the_legend_once():
    alone = Panel("other", PANEL.x, PANEL.y, CURVES[1:])
    figure = draw_panels([PANEL, alone], names=["ours", "theirs"])
    first, second = ({line.get_label(): line for line in axes.lines} for axes in figure.axes)
    assert first["theirs"].get_color() == second["theirs"].get_color()
    assert first["theirs"].get_color() != first["ours"].get_color()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["ours", "theirs"]


def test_one_line_needs_no_legend():
    assert not draw_panels([Panel("title", PANEL.x, PANEL.y, BY_NUMBER)]).legends
