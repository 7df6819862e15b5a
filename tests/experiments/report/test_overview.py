import pytest

from orbithash.experiments.report.overview import overview_picture, overview_table
from orbithash.experiments.tables.results_json import to_json
from planned_runs import clouds_source
from table_results import made_up_results


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    source = clouds_source(folder, "cub200_2011")
    tables = {
        "main": (5, {"order-aware": [0.5] * 5, "itq": [0.1] * 5}),
        "three_scores": (2, {"order-aware": [0.6, 0.7], "two-paths": [0.7, 0.8]}),
    }
    for name, (n_seeds, maps) in tables.items():
        results = made_up_results([source], name, maps, n_seeds=n_seeds, bits=(16, 64))
        (folder / name).mkdir()
        (folder / name / "results.json").write_text(to_json(results), encoding="utf-8")
    return folder


def test_a_figure_is_that_of_the_most_seeds_and_fewer_are_marked(folder):
    lines = overview_table(folder).splitlines()
    assert "| Order-aware, layers alone | 0.5000 | 0.5000 | – | – | – | – | – |" in lines
    assert "| **Order-aware, the default** | 0.7500 (2) | 0.7500 (2) | – | – | – | – | – |" in lines
    assert sum(line.startswith("| ") for line in lines) == 10


def test_the_picture_has_a_panel_for_each_score_that_is_known(folder):
    svg = overview_picture(folder)
    assert "Classes: CUB-200-2011" in svg
    assert "ITQ, no labels" in svg
    assert "VOC2007" not in svg
