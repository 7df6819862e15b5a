import re

import numpy as np
import pytest
from PIL import Image

from feature_files import clouds
from orbithash.data import read_features
from orbithash.experiments.report.examples import find_examples
from orbithash.experiments.report.table_figures import draw_table_figures
from orbithash.experiments.report.table_report import (
    common_settings,
    render_table_report,
    row_settings,
    training_times,
    version_counts,
)
from orbithash.experiments.tables.results import make_results
from orbithash.experiments.tables.run import execute_run
from orbithash.experiments.tables.sources import features_source
from orbithash.experiments.tables.spec import parse_tuning_records, read_table
from orbithash.training import PRESETS
from planned_runs import clouds_source, quick_runs
from table_results import made_up_results

TUNING = parse_tuning_records(
    {
        "about": "The same number of trials for all.",
        "rows": {
            "triplet": {
                "trials": 30,
                "searched": {"margin": "1/32 to 1/2 of the bits"},
                "validation_map": {"VOC2007": 0.7654},
                "note": "The best of five seeds.",
            }
        },
    }
)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of a table on a source with images and one without."""
    folder = tmp_path_factory.mktemp("report")
    sources = [with_images(folder / "images"), clouds_source(folder, "voc2007_clouds")]
    runs = [run for source in sources for run in quick_runs(source)]
    finished = {run.key: execute_run(run, folder) for run in runs}
    results = make_results(read_table("ablation"), runs, finished)
    return render_table_report(
        results,
        draw_table_figures(results, {}),
        tuning=TUNING,
        examples=find_examples(results, runs, folder),
        times=training_times(runs, finished),
        versions=version_counts(runs, folder),
    )


def with_images(folder):
    folder.mkdir()
    arrays = clouds(classes=3, per_class=8)
    names = np.array(["Auk", "Ani", "<Jay>"])
    np.savez(folder / "birds.npz", **arrays, classes=names)
    for path in arrays["paths"]:
        Image.new("RGB", (90, 60), "teal").save(folder / path)
    file = folder / "birds.npz"
    return features_source("birds", file, read_features(file))


def test_the_table_marks_the_reference_and_the_best(page):
    assert "of 2 columns" in page
    for name in ("map", "asymmetric"):
        table = page[page.index(f'<table id="{name}">') :]
        table = table[: table.index("</table>")]
        assert table.count('<tr class="paper">') == 3
        assert table.count('<tr class="reference">') == 1
        assert table.count('<strong class="best">') == (2 if name == "map" else 0)
        assert table.count(" → ") == (0 if name == "map" else 4 * 2)


def test_figures_are_inside_and_nothing_is_loaded(page):
    for value in re.findall(r'(?:src|srcset|href)\s*=\s*"([^"]*)"', page):
        assert value.startswith("data:")
    for value in re.findall(r"url\(([^)]*)\)", page):
        assert value.startswith("data:image/jpeg;base64,")
    assert "<script" not in page
    assert "http://" not in page
    assert "https://" not in page
    assert page.count("data:image/svg+xml") == 2  # two kinds of curves; sources share a figure


def test_each_query_has_results_of_every_method(page):
    assert page.count("<summary>Query ") == 2 * 4
    assert page.count('<div class="strip">') == 2 * 4 * 4
    assert page.count("<figcaption>") == 2 * 4 * 4 * 8
    assert "✓" in page


def test_each_image_is_embedded_once_and_missing_ones_are_shown_as_text(page):
    used = set(re.findall(r'class="thumbnail (s1r\d+)"', page))
    declared = re.findall(r"\.(s1r\d+) \{ background-image", page)
    assert used == set(declared)
    assert len(declared) == len(used)
    assert "s2r" not in page
    assert 'class="thumbnail words"' in page
    assert "&lt;Jay&gt;" in page  # names are escaped


def test_settings_and_their_tuning_are_printed(page):
    assert "The same number of trials for all." in page
    assert "30 trials." in page
    assert "1/32 to 1/2 of the bits" in page
    assert "0.7654" in page
    assert page.count("<td>defaults</td>") == 3
    assert "<b>learning_rate</b> 0.01" in page
    assert "torch" in page


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    source = clouds_source(tmp_path_factory.mktemp("source"))
    results = made_up_results([source], "claim", bits=(16, 64))
    return common_settings(results), {row.row: row for row in row_settings(results)}


def test_a_head_that_only_some_rows_have_is_listed_for_them(tmp_path):
    rows = row_settings(made_up_results([clouds_source(tmp_path)], "three_scores"))
    heads = {row.row: row.settings.get("head") for row in rows}
    assert heads == {"order-aware": None, "two-paths": "two-paths", "lda-itq": None, "itq": None}


def test_common_settings_are_listed_once_and_rows_list_what_differs(settings):
    common, rows = settings
    assert common["learning_rate"] == PRESETS["default"].learning_rate
    assert "learning_rate" not in rows["triplet"].settings
    assert rows["order-aware-paper"].settings["learning_rate"] == "0.001"
    assert rows["order-aware-paper"].settings["hidden"] == "0"


def test_the_reduction_in_use_is_shown(settings):
    _, rows = settings
    assert rows["order-aware"].settings["reduction"] == "active"
    assert rows["order-aware-paper"].settings["reduction"] == "anchor"


def test_two_stages_are_listed_in_their_order(settings):
    _, rows = settings
    assert rows["hard-negative"].method == "triplet, then triplet-hard-negative"
    assert rows["hard-negative"].settings["epochs"] == "1"  # half of two


def test_a_margin_that_grows_with_the_bits_is_shown_as_a_share(settings):
    _, rows = settings
    assert rows["triplet"].settings["margin"] == "0.0625 of the bits"
    assert rows["hard-negative"].settings["margin"] == "0.0625 of the bits, then default"
