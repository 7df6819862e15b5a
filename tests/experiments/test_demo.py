import json
import re

import numpy as np
import pytest

from orbithash.cli.demo import CONTENTS
from orbithash.experiments.demo import DEEP_METHODS, run_demo, search_codes
from orbithash.hashers import HASHERS
from orbithash.index import Neighbours

QUICK = {
    "n_bits": (8, 12),
    "n_runs": 2,
    "epochs": 2,
    "margins": (1 / 4,),
    "learning_rates": (0.01,),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A quick demo's folder, its comparison and the progress it reported."""
    folder, steps = tmp_path_factory.mktemp("demo"), []
    # The slowest shallow methods have tests of their own.
    with pytest.MonkeyPatch.context() as patch:
        quick = {name: HASHERS[name] for name in ("lsh", "itq")}
        patch.setattr("orbithash.experiments.demo.HASHERS", quick)
        comparison = run_demo(folder, **QUICK, progress=lambda *step: steps.append(step))
    return folder, comparison, steps


def test_the_folder_holds_what_the_command_expects(finished):
    folder, _, _ = finished
    assert {path.name for path in folder.iterdir()} == CONTENTS


def test_every_method_is_scored_at_every_code_length(finished):
    _, comparison, _ = finished
    assert comparison.methods() == [*DEEP_METHODS, "lsh", "itq"]
    for outcome in comparison.outcomes:
        assert len(outcome.runs) == 2
        lowest, highest = outcome.map_bounds
        assert 0 < lowest <= outcome.map <= highest <= 1


def test_deep_methods_get_the_same_number_of_trials(finished):
    _, comparison, _ = finished
    assert {len(o.trials) for o in comparison.outcomes if o.kind == "deep"} == {1}


def test_the_stored_codes_answer_as_the_report_says(finished):
    folder, comparison, _ = finished
    outcome = comparison.of("itq", 12)
    file = folder / "codes" / "itq-12-bits.npz"
    with np.load(file) as stored:
        found = search_codes(file, stored["codes"][:3])
        # An image's own code is at distance 0, and so is whatever it returns first.
        assert found.distances[:, 0].tolist() == [0, 0, 0]
        assert np.isin(outcome.neighbours.ids, stored["ids"]).all()
    assert isinstance(found, Neighbours)


def test_the_same_settings_give_the_same_figures(finished, tmp_path, monkeypatch):
    folder, _, _ = finished
    quick = {name: HASHERS[name] for name in ("lsh", "itq")}
    monkeypatch.setattr("orbithash.experiments.demo.HASHERS", quick)
    run_demo(tmp_path, **QUICK)
    assert (tmp_path / "scores.json").read_text() == (folder / "scores.json").read_text()
    pages = [(path / "report.html").read_text() for path in (tmp_path, folder)]
    without_time = [re.sub(r"<dd>\d+ seconds</dd>", "", page) for page in pages]
    assert without_time[0] == without_time[1]


def test_scores_are_written_with_settings_and_versions(finished):
    folder, comparison, _ = finished
    written = json.loads((folder / "scores.json").read_text())
    assert written["settings"]["seed"] == 0
    assert "torch" in written["versions"]
    assert written["outcomes"][0]["map"] == comparison.outcomes[0].map
    assert len(written["outcomes"][0]["trials"]) == 1


def test_progress_of_every_stage_reaches_its_end(finished):
    _, _, steps = finished
    last = {stage: (done, total) for stage, done, total in steps}
    assert len(last) == 4
    assert all(done == total for done, total in last.values())


def test_the_report_has_the_table_the_curves_and_the_rows(finished):
    folder, comparison, _ = finished
    page = (folder / "report.html").read_text()
    for outcome in comparison.outcomes:
        assert f"{outcome.map:.3f}" in page
    for n_bits in (8, 12):
        best = comparison.best(n_bits)
        assert f'<strong class="best">{best.map:.3f}</strong>' in page
    assert page.count("data:image/svg+xml") == 4
    # Ten digits for each of four methods, and the hardest queries of the first.
    assert page.count('alt="query:') == 4 * 10 + 4
    assert page.count("✓") > 100


def test_the_report_loads_nothing(finished):
    folder, _, _ = finished
    page = (folder / "report.html").read_text()
    for value in re.findall(r'(?:src|srcset|href)\s*=\s*"([^"]*)"', page):
        assert value.startswith("data:")
    assert "url(" not in page
    assert "<script" not in page
    assert "http://" not in page
    assert "https://" not in page


def test_a_method_that_cannot_give_the_bits_is_left_out_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr("orbithash.experiments.demo.HASHERS", {"pca": HASHERS["pca"]})
    comparison = run_demo(
        tmp_path, n_bits=(70,), n_runs=1, epochs=1, margins=(0.1,), learning_rates=(0.01,)
    )
    assert comparison.methods() == list(DEEP_METHODS)
    assert "pca at 70 bits" in comparison.skipped[0]
    assert "Left out: pca at 70 bits" in (tmp_path / "report.html").read_text()
