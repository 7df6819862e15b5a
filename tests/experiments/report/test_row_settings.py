import pytest

from orbithash.experiments.report.table_report import common_settings, row_settings
from orbithash.training import PRESETS
from planned_runs import clouds_source
from table_results import made_up_results


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    source = clouds_source(tmp_path_factory.mktemp("source"))
    results = made_up_results([source], "claim", bits=(16, 64))
    return common_settings(results), {row.row: row for row in row_settings(results)}


def test_common_settings_are_listed_once_and_rows_list_what_differs(settings):
    common, rows = settings
    assert common["learning_rate"] == PRESETS["default"].learning_rate
    assert "learning_rate" not in rows["triplet"].settings
    assert rows["order-aware-paper"].settings["learning_rate"] == "0.001"
    assert rows["order-aware-paper"].settings["hidden"] == "0"


def test_the_reduction_that_counts_is_shown(settings):
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
