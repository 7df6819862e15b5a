import numpy as np
import pytest

from orbithash.encoders import Epoch
from orbithash.experiments.report.table_figures import (
    OUR_FILES,
    draw_table_figures,
    mean_history,
    write_figures,
)
from planned_runs import clouds_source
from table_results import made_up_results


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    return [clouds_source(folder, name) for name in ("clouds", "voc2007_clouds")]


def by_name(figures):
    return {figure.name: figure for figure in figures}


def test_sources_are_side_by_side_with_a_line_per_method(sources):
    maps = {"triplet": [0.25, 0.75, 0.5]}
    results = made_up_results(sources, maps=maps, bits=(16, 32))
    figure = by_name(draw_table_figures(results, {}))["map_over_bits"]
    assert [panel.title for panel in figure.panels] == ["clouds", "VOC2007"]
    assert figure.names[0] == "Order-aware"
    lines = {curve.name: curve for curve in figure.panels[0].curves}
    assert lines.keys() == {"Triplet", "Square only", "Weight only", "Order-aware"}
    assert lines["Triplet"].x.tolist() == [16, 32]
    assert lines["Triplet"].y.tolist() == [0.5, 0.5]
    assert lines["Triplet"].spread.tolist() == [0.25, 0.25]


def test_rows_that_are_not_in_the_paper_have_separate_figures(sources):
    figures = by_name(draw_table_figures(made_up_results(sources, "claim", bits=(16, 32)), {}))
    paper = {curve.name for curve in figures["precision_recall_16_bits"].panels[0].curves}
    more = {curve.name for curve in figures["precision_recall_16_bits_more"].panels[0].curves}
    assert paper & more == {"Order-aware"}
    assert "Order-aware, paper's recipe" in more


def test_the_powers_of_the_hinge_are_drawn_over_gamma(sources):
    maps = {"gamma-5": None, "square-only": [0.8, 0.8, 0.8]}
    figures = by_name(draw_table_figures(made_up_results(sources, "gamma", maps), {}))
    assert "map_over_bits" not in figures
    (curve,) = figures["map_over_gamma"].panels[0].curves
    assert curve.x.tolist() == [1, 2, 3, 4]  # γ = 5 failed
    assert curve.y[1] == pytest.approx(0.8)


def test_training_is_drawn_from_the_logs(sources):
    logs = [
        [Epoch(number, 4.0, learning_rate=0.1, active_share=0.5) for number in range(3)],
        [Epoch(number, 2.0, learning_rate=0.1, active_share=0.25) for number in range(2)],
    ]
    history = mean_history(logs)
    assert history.loss.tolist() == [3.0, 3.0]
    assert np.isnan(history.validation_map).all()
    results = made_up_results(sources)
    figure = by_name(draw_table_figures(results, {("triplet", "clouds", 32): history}))[
        "training_32_bits"
    ]
    assert figure.columns == 2
    assert [panel.y.label.split()[0] for panel in figure.panels[::2]] == ["loss", "triplets"]
    (curve,) = figure.panels[0].curves
    assert curve.y.tolist() == [1.0, 1.0]  # relative to the first epoch
    assert not figure.panels[1].curves  # the other source has no log


def test_figures_are_written_as_svg_and_png(sources, tmp_path):
    figures = draw_table_figures(made_up_results(sources), {})
    write_figures(figures[:1], tmp_path)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["precision_recall_32_bits.png", "precision_recall_32_bits.svg"]
    assert (tmp_path / files[0]).read_bytes().startswith(b"\x89PNG")


def test_earlier_figures_are_removed_and_foreign_files_stay(sources, tmp_path):
    figures = draw_table_figures(made_up_results(sources, bits=(16, 32)), {})
    earlier = by_name(figures)["precision_at_32_bits"]
    write_figures([earlier], tmp_path)
    (tmp_path / "my_own.png").write_bytes(b"not ours")
    write_figures(figures[:1], tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {
        "my_own.png",
        f"{figures[0].name}.png",
        f"{figures[0].name}.svg",
    }


def test_the_file_name_of_every_figure_is_recognised(sources):
    for table in ("claim", "gamma"):
        for figure in draw_table_figures(made_up_results(sources, table, bits=(16, 32)), {}):
            assert OUR_FILES.fullmatch(f"{figure.name}.svg")
