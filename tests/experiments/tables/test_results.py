import json
from dataclasses import replace

import pytest

from orbithash.experiments.report.latex import to_latex
from orbithash.experiments.report.markdown import to_markdown
from orbithash.experiments.tables.results_json import read_results, to_json
from planned_runs import clouds_source
from table_results import made_up_results

# MAP by row, from seeds 0, 1 and 2.
MAPS = {
    "triplet": (0.70, 0.71, 0.72),
    "square-only": (0.80, 0.81, 0.82),
    "weight-only": (0.76, 0.75, 0.74),
    "order-aware": (0.799, 0.811, 0.818),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return clouds_source(tmp_path_factory.mktemp("source"), "voc2007_clouds")


def results_of(source, maps=MAPS, n_seeds=3):
    return made_up_results([source], maps=maps, n_seeds=n_seeds)


def test_the_published_map_and_the_difference_are_beside_ours(source):
    markdown, latex = to_markdown(results_of(source)), to_latex(results_of(source))
    assert "| Triplet | 0.7100 ± 0.0100<br>0.7745 (−0.0645) |" in markdown
    assert "0.7100 $\\pm$ 0.0100$^\\dagger$ \\\\ {\\scriptsize 0.7745 ($-0.0645$)}" in latex


def test_the_best_is_bold(source):
    assert "| Square only | **0.8100** ± 0.0100" in to_markdown(results_of(source))
    assert "\\textbf{0.8100}" in to_latex(results_of(source))


def test_the_report_says_that_the_reference_is_not_first(source):
    near = to_markdown(results_of(source))
    assert "Order-aware is 0.0007 behind Square only, within one standard error" in near
    far = to_markdown(results_of(source, MAPS | {"order-aware": (0.70, 0.75, 0.72)}))
    assert "behind Square only, beyond one standard error of its mean (0.0058)" in far


def test_a_lead_within_noise_is_reported_as_such(source):
    clear = to_markdown(results_of(source, MAPS | {"order-aware": (0.9, 0.91, 0.92)}))
    assert "Order-aware is first, 0.1000 ahead of Square only (p < 0.001)." in clear
    assert "is first in 1 of 1 columns (in 1 beyond noise)" in clear
    slight = to_markdown(results_of(source, MAPS | {"order-aware": (0.9, 0.72, 0.82)}))
    assert "ahead of Square only (p = " in slight
    assert ", within noise)" in slight
    assert "is first in 1 of 1 columns (in 0 beyond noise)" in slight


def test_first_beyond_noise_means_ahead_of_every_row(source):
    noisy = MAPS | {"order-aware": (0.9, 0.91, 0.92), "weight-only": (0.3, 0.89, 0.8)}
    markdown = to_markdown(results_of(source, noisy))
    assert "ahead of Square only (p < 0.001)." in markdown
    assert "is first in 1 of 1 columns (in 0 beyond noise)" in markdown


def test_a_mean_over_fewer_seeds_is_marked_and_not_ranked(source):
    results = results_of(source, MAPS | {"triplet": (0.99, None, None)})
    markdown = to_markdown(results)
    assert "| Triplet | 0.9900 (1 of 3 seeds)" in markdown
    assert "0.9900 (1 of 3 seeds)" in to_latex(results)
    assert "**0.8100**" in markdown
    assert "Not compared, because runs are missing: Triplet." in markdown
    assert "2 runs are missing" in markdown


def test_a_column_without_the_reference_is_counted(source):
    markdown = to_markdown(results_of(source, MAPS | {"order-aware": (0.99, None, 0.99)}))
    assert "Order-aware is first in 0 of 1 columns" in markdown


def test_one_seed_makes_no_test_and_no_spread(source):
    markdown = to_markdown(results_of(source, n_seeds=1))
    assert "±" not in markdown
    assert "against each method" not in markdown
    assert "one seed is not enough" in markdown


def test_a_failed_run_leaves_a_gap_and_is_listed(source):
    results = results_of(source, MAPS | {"triplet": None})
    assert "| Triplet | – |" in to_markdown(results)
    assert "- triplet, 32 bits, seed 2, voc2007_clouds" in to_markdown(results)
    assert len(json.loads(to_json(results))["missing"]) == 3


def test_every_figure_is_in_the_json(source):
    values = json.loads(to_json(results_of(source)))
    (column,) = values["columns"]
    assert column["in_paper"]["first"] == "Square only"
    assert not column["in_paper"]["is_first"]
    assert column["in_paper"]["within_one_error"]
    triplet = values["rows"][0]["cells"][0]
    assert triplet["maps"] == {"0": 0.70, "1": 0.71, "2": 0.72}
    assert triplet["reference_above"]["p"] < triplet["p_holm"] < 0.05
    assert triplet["printed"] == 0.7745
    assert triplet["curves"]["recall"] == [1.0]  # no query has a result within radius 0


def test_floats_are_shown_and_not_ranked(tmp_path):
    source = clouds_source(tmp_path, "cub200_2011_clouds")
    maps = {"features": (0.99, 0.99, 0.99), "lda-itq": (0.8, 0.81, 0.82)}
    results = made_up_results([source], "unseen", maps)
    markdown = to_markdown(results)
    assert "| *LDA-ITQ* | **0.8100** ± 0.0100 |" in markdown
    assert "| *Features (floats)* | 0.9900 ± 0.0000 |" in markdown
    assert "behind LDA-ITQ" in markdown
    assert markdown.count("*Features (floats)*") == 1 + 2  # no test against it
    assert "| CUB-200-2011, fixed halves, 32 bits | CUB-200-2011, random halves" in markdown
    assert "paper's rows" not in markdown
    cells = {row["name"]: row["cells"] for row in json.loads(to_json(results))["rows"]}
    assert all(cell["p_holm"] is None for cell in cells["features"])
    assert all(cell["printed"] is None for cell in cells["itq"])


def test_the_look_is_shown_where_it_is_known(source, tmp_path):
    plain = results_of(source)
    assert "Look" not in to_markdown(plain)
    triplet = ("triplet", plain.columns[0])
    beside = {"look": {0: 0.4, 2: 0.5}, "distinct_codes": {0: 1000, 2: 2001}}
    cells = {**plain.cells, triplet: replace(plain.cells[triplet], beside=beside)}
    known = replace(plain, cells=cells)
    assert "| Triplet | 45.0%<br>1,500 codes |" in to_markdown(known)
    assert "| Square only | – |" in to_markdown(known)
    file = tmp_path / "results.json"
    file.write_text(to_json(known))
    assert read_results(file).cells[triplet].beside == beside
    assert json.loads(to_json(known))["rows"][0]["cells"][0]["look"] == {"0": 0.4, "2": 0.5}
