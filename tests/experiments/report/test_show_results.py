import pytest

from orbithash.errors import InputError
from orbithash.experiments.report.markdown import to_markdown
from orbithash.experiments.report.show_results import refresh, refreshed
from orbithash.experiments.report.table_figures import draw_table_figures
from orbithash.experiments.tables.results_json import read_results, to_json
from planned_runs import clouds_source
from table_results import made_up_results

PAGE = """# Mine

<!-- results of claim: short -->
Nothing yet.
<!-- end of results -->

between

<!-- results of claim: table -->
<!-- end of results -->

<!-- results of claim: whole -->
<!-- end of results -->
after
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    source = clouds_source(tmp_path_factory.mktemp("source"), "voc2007_clouds")
    maps = {"triplet": [0.7, 0.8, 0.9], "dsh": None}
    return made_up_results([source], "claim", maps, bits=(16, 32))


@pytest.fixture
def folder(results, tmp_path):
    (tmp_path / "claim").mkdir()
    (tmp_path / "claim" / "results.json").write_text(to_json(results), encoding="utf-8")
    return tmp_path


def test_results_are_read_as_they_were_written(results, folder):
    read = read_results(folder / "claim" / "results.json")
    assert to_markdown(read) == to_markdown(results)
    assert to_json(read) == to_json(results)
    drawn, expected = draw_table_figures(read, {}), draw_table_figures(results, {})
    assert [figure.name for figure in drawn] == [figure.name for figure in expected]


def test_the_table_is_between_the_marks_and_nothing_else_changes(folder):
    page = refreshed(PAGE, folder)
    assert "Nothing yet." not in page
    assert page.count("| Triplet | **0.8000** ± 0.1000") == 3
    assert page.count("Order-aware is first in 0 of 2 columns") == 2
    assert page.count("### Order-aware against each method") == 1
    assert page.startswith("# Mine\n\n<!-- results of claim: short -->\n")
    assert "<!-- end of results -->\n\nbetween\n" in page
    assert page.endswith("<!-- end of results -->\nafter\n")
    assert refreshed(page, folder) == page


def test_without_results_a_page_stays_as_it_is(tmp_path):
    assert refreshed(PAGE, tmp_path) == PAGE


def test_a_page_is_rewritten_only_if_it_is_stale(folder, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    refresh(page, folder)
    assert page.read_text(encoding="utf-8") == refreshed(PAGE, folder)
    written = page.stat().st_mtime_ns
    refresh(page, folder)
    assert page.stat().st_mtime_ns == written


def test_a_file_that_holds_no_results_is_named(tmp_path):
    (tmp_path / "results.json").write_text('{"table": "main"}')
    with pytest.raises(InputError, match=r"results\.json that reproduce wrote"):
        read_results(tmp_path / "results.json")
