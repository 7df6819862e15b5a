import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from orbithash.experiments.figure import Curve, precision_at_figure, precision_recall_figure

CURVES = [
    Curve("ours", np.array([0.1, 0.5, 1.0]), np.array([1.0, 0.8, 0.2])),
    Curve("theirs", np.array([0.2, 0.6, 1.0]), np.array([0.9, 0.5, 0.2])),
]
BY_NUMBER = [Curve("ours", np.array([1, 10, 100]), np.array([1.0, 0.8, 0.2]))]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_figures_are_whole_svg_files(theme):
    for text in (
        precision_recall_figure(CURVES, n_bits=16, theme=theme),
        precision_at_figure(BY_NUMBER, n_bits=16, theme=theme),
    ):
        assert ElementTree.fromstring(text).tag.endswith("svg")


def test_the_same_curves_give_the_same_bytes():
    first = precision_recall_figure(CURVES, n_bits=16)
    assert first == precision_recall_figure(CURVES, n_bits=16)
    assert first != precision_recall_figure(CURVES[::-1], n_bits=16)


def test_light_and_dark_pages_get_different_ink():
    assert precision_recall_figure(CURVES, n_bits=16) != precision_recall_figure(
        CURVES, n_bits=16, theme="dark"
    )
