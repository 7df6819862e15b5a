from dataclasses import replace

import pytest

from orbithash.errors import InputError
from orbithash.experiments.tables.plan import describe_stage, plan_runs, row_stages, unique_runs
from orbithash.experiments.tables.spec import RowSpec, read_rows, read_table
from orbithash.hashers import HASHERS, IterativeQuantization
from orbithash.training import PRESETS
from planned_runs import clouds_source, quick_runs


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return clouds_source(tmp_path_factory.mktemp("source"))


def row_folder(row, source, **options):
    return next(run.folder() for run in quick_runs(source, **options) if run.row == row)


def test_tables_share_the_runs_of_the_rows_they_share(source):
    runs = unique_runs(
        quick_runs(source, "ablation", n_seeds=2) + quick_runs(source, "selection", n_seeds=2)
    )
    assert len(runs) == 2 * 6
    assert [run.seed for run in runs] == [0] * 6 + [1] * 6


def test_runs_with_other_inputs_have_other_folders(source, tmp_path):
    same = row_folder("triplet", source)
    assert row_folder("triplet", source, table="selection") == same
    assert row_folder("triplet", source, epochs=3) != same
    assert row_folder("triplet", source, bits=(16,)) != same
    other_data = clouds_source(tmp_path, seed=1)
    assert row_folder("triplet", other_data) != same
    moved = replace(source, file=tmp_path / "moved.npz")
    assert row_folder("triplet", moved) == same


def test_other_defaults_of_a_method_lead_to_another_folder(source, monkeypatch):
    class Longer(IterativeQuantization):
        def __init__(self, n_bits=32, *, n_iter=51, random_state=None):
            super().__init__(n_bits, n_iter=n_iter, random_state=random_state)

    before = row_folder("itq", source, table="main")
    monkeypatch.setitem(HASHERS, "itq", Longer)
    assert row_folder("itq", source, table="main") != before


def test_training_settings_do_not_change_the_folder_of_a_hasher(source):
    assert row_folder("itq", source, table="main", epochs=3) == row_folder(
        "itq", source, table="main", epochs=9
    )


def test_two_stages_share_the_epochs_of_one():
    plain, hard = row_stages(read_rows()["hard-negative"], 16, epochs=5)
    assert (plain.method, hard.method) == ("triplet", "triplet-hard-negative")
    assert (plain.settings.epochs, hard.settings.epochs) == (3, 2)
    with pytest.raises(InputError, match="needs at least 2"):
        row_stages(read_rows()["hard-negative"], 16, epochs=1)


def test_a_row_overrides_settings_of_its_preset():
    row = RowSpec("mine", "Mine", "triplet", preset="paper", settings={"dropout": 0.25})
    (stage,) = row_stages(row, 16, epochs=7)
    assert stage.settings == replace(PRESETS["paper"], dropout=0.25, epochs=7)


def test_a_margin_as_a_share_grows_with_the_bits():
    row = RowSpec("mine", "Mine", "triplet", margin_of_bits=0.25)
    assert [row_stages(row, n, epochs=1)[0].options["margin"] for n in (16, 64)] == [4, 16]


def test_wrong_declarations_are_found_before_anything_runs(source):
    with pytest.raises(InputError, match="triplet has no option 'gama'"):
        row_stages(RowSpec("mine", "Mine", "triplet", options={"gama": 2}), 16, epochs=1)
    with pytest.raises(InputError, match="got 3 bits"):
        plan_runs(read_table("main"), [source], bits=(3,), seeds=[0])


def test_half_of_the_classes_is_held_out_in_two_ways(source):
    runs = [run for run in quick_runs(source, "unseen", n_seeds=3) if run.row == "itq"]
    fixed = {run.seed: run for run in runs if run.source.halves == "fixed"}
    drawn = {run.seed: run for run in runs if run.source.halves == "random"}
    assert len(runs) == 2 * 3
    assert {run.held_out for run in fixed.values()} == {("3", "4")}  # of five classes
    assert {len(run.held_out) for run in drawn.values()} == {2}
    assert len({run.held_out for run in drawn.values()}) > 1
    assert fixed[0].source.display_name == "clouds, fixed halves"
    assert len({run.folder() for run in runs}) == 6
    again = quick_runs(source, "unseen", n_seeds=3)
    assert [run.held_out for run in again if run.row == "itq"] == [run.held_out for run in runs]


def test_runs_that_hold_out_nothing_keep_the_identity_they_had(source):
    for run in quick_runs(source, "main"):
        assert set(run.identity()) == {"recipe", "data", "n_bits", "seed", "stages"}


def test_runs_without_later_settings_are_where_they_were(source):
    """Finished runs of earlier versions are found again."""
    runs = quick_runs(replace(source, digest="0"), "main")
    folders = {run.row: run.folder().name for run in runs}
    assert folders["order-aware"] == "seed-0-b62e75d2"
    assert folders["order-aware-paper"] == "seed-0-605740eb"


def test_a_row_may_weigh_the_look():
    row = RowSpec("look", "Look", method="order-aware", settings={"look": 0.3})
    (stage,) = row_stages(row, 8, epochs=None)
    assert describe_stage(stage)["settings"]["look"] == 0.3
    with pytest.raises(InputError, match="look=-1; give a number"):
        row_stages(replace(row, settings={"look": -1}), 8, epochs=None)


def test_features_are_scored_once_for_all_lengths(source):
    runs = [
        run
        for run in quick_runs(source, "unseen", n_seeds=3, bits=(8, 16))
        if run.row == "features"
    ]
    assert len(runs) == 2 * 2 * 3
    assert len(unique_runs(runs)) == 1 + len({run.held_out for run in runs} - {("3", "4")})


def test_a_source_of_few_classes_cannot_be_halved(tmp_path):
    few = clouds_source(tmp_path, "few", classes=3)
    with pytest.raises(InputError, match=r"few has 3 classes; .* at least 4"):
        quick_runs(few, "unseen")
