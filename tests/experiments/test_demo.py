import json
import re
from pathlib import Path

import numpy as np
import pytest

import orbithash
from orbithash.cli.demo import CONTENTS
from orbithash.data import DATASETS
from orbithash.experiments.comparison import Comparison
from orbithash.experiments.demo import DEEP_METHODS, as_images, run_demo, search_codes, with_rows
from orbithash.experiments.report.demo_report import method_line
from orbithash.hashers import HASHERS
from orbithash.index import Neighbours

QUICK = {
    "n_bits": (8, 12),
    "n_runs": 2,
    "epochs": 2,
    "trial_epochs": 1,
    "margins": (1 / 4,),
    "learning_rates": (0.01,),
}
SMALLEST = QUICK | {"n_runs": 1, "epochs": 1, "margins": ()}


FINAL = Path("/where/it/ends/up")  # the command writes elsewhere and then renames the folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A quick demo's folder, its comparison and the progress it reported."""
    folder, steps = tmp_path_factory.mktemp("demo"), []
    # The slowest shallow methods have tests of their own.
    with pytest.MonkeyPatch.context() as patch:
        quick = {name: HASHERS[name] for name in ("lsh", "itq")}
        patch.setattr("orbithash.experiments.demo.HASHERS", quick)
        comparison = run_demo(
            folder, final=FINAL, **QUICK, progress=lambda *step: steps.append(step)
        )
    return folder, comparison, steps


def test_the_folder_holds_what_the_command_expects(finished):
    folder, _, _ = finished
    assert {path.name for path in folder.iterdir()} == CONTENTS


def test_every_method_is_scored_at_every_code_length(finished):
    _, comparison, _ = finished
    assert {o.method for o in comparison.outcomes} == {*DEEP_METHODS, "lsh", "itq"}
    assert len(comparison.outcomes) == 4 * 2
    for outcome in comparison.outcomes:
        assert len(outcome.runs) == 2
        lowest, highest = outcome.map_bounds
        assert 0 < lowest <= outcome.map <= highest <= 1


def test_methods_are_sorted_by_their_score_at_the_longest_codes(finished):
    _, comparison, _ = finished
    maps = [comparison.of(method, 12).map for method in comparison.methods()]
    assert maps == sorted(maps, reverse=True)
    assert comparison.best(12).method == comparison.methods()[0]


def test_a_method_without_the_longest_codes_comes_last(finished):
    _, comparison, _ = finished
    best = comparison.methods()[0]
    outcomes = tuple(o for o in comparison.outcomes if (o.method, o.n_bits) != (best, 12))
    shortened = Comparison(
        comparison.dataset, outcomes, (), comparison.settings, comparison.versions
    )
    assert shortened.methods()[-1] == best


def test_both_losses_have_the_same_trials(finished):
    _, comparison, _ = finished
    for n_bits in (8, 12):
        first, second = (
            [(trial["learning_rate"], trial["margin"], trial["epochs"]) for trial in o.trials]
            for o in comparison.outcomes
            if o.kind == "deep" and o.n_bits == n_bits
        )
        assert first == second == [(0.01, n_bits / 8, 1), (0.01, n_bits / 4, 1)]


def test_shallow_methods_try_the_views_as_rows_and_keep_what_scores_higher(finished):
    _, comparison, _ = finished
    for outcome in comparison.outcomes:
        if outcome.kind == "shallow":
            assert [trial["views"] for trial in outcome.trials] == [0, 9]
            assert outcome.chosen["map"] == max(trial["map"] for trial in outcome.trials)


def test_views_are_of_training_images_only():
    digits = DATASETS["digits"]()
    images = as_images(digits, 3)
    assert images.views.features.shape == (3 * 400, 3, 8, 8)
    assert set(images.views.of) == set(digits.split.train)
    grown = with_rows(digits, 2, seed=0)
    assert len(grown) == len(digits) + 2 * 400
    assert len(grown.split.train) == 3 * 400
    # Each row that was added has the label of a training image, ten classes of 40.
    assert np.bincount(grown.labels[len(digits) :]).tolist() == [2 * 40] * 10
    np.testing.assert_array_equal(grown.features[: len(digits)], digits.features)


def test_the_index_is_searched_by_an_image_file_and_knows_where_the_images_will_be(finished):
    folder, comparison, _ = finished
    digits = comparison.dataset
    with orbithash.open_index(folder / "digits.orbit") as index:
        assert len(index) == len(digits.split.database)
        row = int(digits.split.database[0])
        label = str(digits.labels[row])
        name = f"images/database/{label}/{row:04}.png"
        # The file is encoded as the pixels in memory were, so its own code is at distance 0.
        hits = index.query(folder / name, radius=0)
        assert row in [hit.id for hit in hits]
        (stored,) = index.get([row]).metadata
    assert stored.path == str(FINAL / name)
    assert stored.labels == (label,)
    queries = list((folder / "images" / "queries").glob("*/*.png"))
    assert len(queries) == len(digits.split.query)


def test_every_method_has_a_line_and_all_but_one_a_paper():
    for method in (*DEEP_METHODS, *HASHERS):
        line = method_line(method)
        assert line.summary.endswith(".")
        assert bool(re.search(r"\d{4}", line.paper)) == (method != "pca")


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


@pytest.mark.slow
def test_the_same_settings_give_the_same_figures(finished, tmp_path, monkeypatch):
    folder, _, _ = finished
    quick = {name: HASHERS[name] for name in ("lsh", "itq")}
    monkeypatch.setattr("orbithash.experiments.demo.HASHERS", quick)
    run_demo(tmp_path, final=FINAL, **QUICK)
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
    assert len(written["outcomes"][0]["trials"]) == 2
    assert written["settings"]["index"]["n_bits"] == 12


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
    comparison = run_demo(tmp_path, **SMALLEST | {"n_bits": (70,)})
    assert set(comparison.methods()) == set(DEEP_METHODS)
    assert "pca at 70 bits" in comparison.skipped[0]
    assert "Left out: pca at 70 bits" in (tmp_path / "report.html").read_text()
