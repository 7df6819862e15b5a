import json

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import orbithash
from coloured_images import coloured, write_table
from feature_files import clouds
from orbithash.encoders import read_record
from orbithash.encoders.runs.run_folder import read_log
from orbithash.errors import InputError
from orbithash.evaluation import evaluate
from orbithash.experiments.tables import run as run_module
from orbithash.experiments.tables import sources as sources_module
from orbithash.experiments.tables.plan import unique_runs
from orbithash.experiments.tables.run import (
    execute_run,
    find_finished,
    run_folder,
)
from orbithash.experiments.tables.sources import (
    NetworkSpec,
    features_source,
    prepare_sources,
    read_features_once,
)
from orbithash.metrics.floats import evaluate_floats
from orbithash.networks import SmallCNN
from orbithash.training import Checkpoints
from planned_runs import clouds_source, quick_runs


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return clouds_source(tmp_path_factory.mktemp("source"))


def test_a_finished_run_is_complete_and_not_repeated(source, tmp_path, monkeypatch):
    (planned, *_) = quick_runs(source)
    assert find_finished(planned, tmp_path) is None
    done = execute_run(planned, tmp_path)
    folder = run_folder(planned, tmp_path)
    assert read_record(folder).method == "triplet"
    assert json.loads((folder / "identity.json").read_text()) == planned.identity()
    encoder = orbithash.load(folder)
    data = read_features_once(source.file)
    assert done.scores.map == pytest.approx(evaluate(encoder, data).map)

    monkeypatch.setattr(run_module, "train", None)  # would fail if it were called
    again = execute_run(planned, tmp_path)
    assert again.scores == done.scores


def test_one_nested_run_has_the_scores_of_all_its_lengths(source, tmp_path, monkeypatch):
    runs = quick_runs(source, "nested", bits=(8, 16))
    nested = {run.n_bits: run for run in runs if run.row == "order-aware-nested"}
    alone = {run.n_bits: run for run in runs if run.row == "order-aware"}
    assert len({run.folder() for run in alone.values()}) == 2
    assert len({run.folder() for run in nested.values()}) == 1
    assert len(unique_runs(runs)) == 3
    execute_run(nested[16], tmp_path)
    monkeypatch.setattr(run_module, "train", None)  # would fail if it were called
    encoder = orbithash.load(run_folder(nested[8], tmp_path))
    assert (encoder.n_bits, encoder.nested) == (16, (8,))
    data = read_features_once(source.file)
    for n_bits, planned in nested.items():
        scores = execute_run(planned, tmp_path).scores
        assert (scores.n_bits, scores.queries) == (n_bits, 25)
        assert scores.map == pytest.approx(evaluate(encoder.prefix(n_bits), data).map)


def test_layers_are_not_trained_again_if_they_have_a_second_path_elsewhere(
    source, tmp_path, monkeypatch
):
    runs = {run.row: run for run in quick_runs(source, "three_scores")}
    order = [run.row for run in unique_runs(runs.values())]
    assert order.index("two-paths") < order.index("order-aware")
    execute_run(runs["two-paths"], tmp_path / "both")
    trained = execute_run(runs["order-aware"], tmp_path / "alone")
    monkeypatch.setattr(run_module, "train", None)  # would fail if it were called
    taken = execute_run(runs["order-aware"], tmp_path / "both")
    assert taken.scores == trained.scores
    folders = [run_folder(runs["order-aware"], tmp_path / name) for name in ("both", "alone")]
    for name in ("model.safetensors", "identity.json"):
        assert len({(folder / name).read_bytes() for folder in folders}) == 1
    (first, second) = (read_log(folder / "log.jsonl") for folder in folders)
    assert [epoch.loss for epoch in first] == [epoch.loss for epoch in second]
    assert read_record(folders[0]) == read_record(folders[1])


def test_fine_tuning_resumes_after_a_crash(tmp_path, monkeypatch):
    images = coloured(tmp_path / "images")
    images.file(int(images.split.query[1])).write_text("no image")
    table = str(write_table(images, tmp_path / "birds.csv"))
    network = NetworkSpec("small-cnn", None)
    (source,) = prepare_sources([table], tmp_path, network=network, frozen=False, hashers=False)
    hard = next(
        run for run in quick_runs(source, "selection", epochs=4) if run.row == "hard-negative"
    )
    monkeypatch.setattr(Checkpoints, "due", lambda self: True)

    def crash(epoch):
        if epoch.number == 3:
            raise OSError("power cut")

    with pytest.raises(OSError, match="power cut"):
        execute_run(hard, tmp_path / "crashed", after_epoch=crash)
    epochs = []
    done = execute_run(hard, tmp_path / "crashed", after_epoch=epochs.append)
    uninterrupted = execute_run(hard, tmp_path / "whole")
    assert done.scores == uninterrupted.scores
    assert [epoch.number for epoch in epochs] == [0, 1, 2, 3]
    folders = [run_folder(hard, tmp_path / name) for name in ("crashed", "whole")]
    assert len({(folder / "model.safetensors").read_bytes() for folder in folders}) == 1
    assert [path.name for path in folders[0].parent.iterdir()] == [folders[0].name]
    record = read_record(folders[0])
    assert (record.backbone, record.source, record.init) == ("small-cnn", table, "triplet")
    assert done.scores.queries == len(images.split.query) - 1


def test_a_run_on_images_trains_the_whole_network_without_a_head_first(tmp_path):
    table = str(write_table(coloured(tmp_path / "images"), tmp_path / "birds.csv"))
    weights = tmp_path / "weights.safetensors"
    save_file(SmallCNN(channels=3).state_dict(), weights)
    network = NetworkSpec("small-cnn", weights)
    (source,) = prepare_sources([table], tmp_path, network=network, frozen=False, hashers=False)
    planned = next(run for run in quick_runs(source, "main") if run.row == "triplet")
    execute_run(planned, tmp_path)
    encoder = orbithash.load(run_folder(planned, tmp_path))
    trained = encoder.backbone.state_dict()
    assert any(not weight.equal(trained[name]) for name, weight in load_file(weights).items())
    assert encoder.hidden == 0


def test_a_changed_run_folder_is_named(source, tmp_path):
    (planned, *_) = quick_runs(source, "main")
    execute_run(planned, tmp_path)
    (run_folder(planned, tmp_path) / "evaluation.json").unlink()
    with pytest.raises(InputError, match="remove the folder"):
        find_finished(planned, tmp_path)


def test_a_second_stage_starts_from_the_weights_of_the_first(source, tmp_path, monkeypatch):
    starts = []
    train = run_module.train

    def recorded(*arguments, init, **options):
        encoder = train(*arguments, init=init, **options)
        starts.append((init, encoder))
        return encoder

    monkeypatch.setattr(run_module, "train", recorded)
    hard = next(run for run in quick_runs(source, "selection") if run.row == "hard-negative")
    execute_run(hard, tmp_path)
    (first_init, first_encoder), (second_init, _) = starts
    assert first_init is None
    assert second_init is first_encoder
    folder = run_folder(hard, tmp_path)
    assert [epoch.number for epoch in read_log(folder / "log.jsonl")] == [0, 1]
    assert json.loads((folder / "scores.json").read_text())["best_epoch"] == 1


def test_labels_of_queries_do_not_affect_training(source, tmp_path):
    (planned, *_) = quick_runs(source)
    other = clouds_source(tmp_path, "other")
    with np.load(other.file) as arrays:
        changed = dict(arrays)
    changed["labels"][changed["query"]] = np.roll(changed["labels"][changed["query"]], 7)
    np.savez(other.file, **changed)
    (other_run, *_) = quick_runs(other)
    execute_run(planned, tmp_path)
    execute_run(other_run, tmp_path)
    codes = [
        orbithash.load(run_folder(run, tmp_path)).encode(changed["features"])
        for run in (planned, other_run)
    ]
    np.testing.assert_array_equal(*codes)


def test_a_run_with_held_out_classes_has_the_scores_of_evaluate(source, tmp_path):
    runs = quick_runs(source, "unseen")
    planned = next(run for run in runs if run.row == "lda-itq" and run.source.halves == "random")
    done = execute_run(planned, tmp_path)
    encoder = orbithash.load(run_folder(planned, tmp_path))
    assert encoder.training.record.held_out_classes == planned.held_out
    scores = evaluate(encoder, read_features_once(source.file))
    assert set(done.scores.transfer) == set(scores.transfer)
    for part, of_part in scores.transfer.items():
        assert done.scores.transfer[part].map == pytest.approx(of_part.map)
        assert done.scores.transfer[part].recall_at == of_part.recall_at
    assert execute_run(planned, tmp_path).scores == done.scores


def test_runs_know_the_look_and_find_its_neighbours_once(source, tmp_path, monkeypatch):
    found = []
    find = sources_module.nearest_items
    monkeypatch.setattr(sources_module, "nearest_items", lambda *a: (found.append(1), find(*a))[1])
    sources_module.nearest_once.cache_clear()
    data = read_features_once(source.file)
    for planned in quick_runs(source, "shallow")[:3]:
        scores = execute_run(planned, tmp_path).scores
        expected = evaluate(orbithash.load(run_folder(planned, tmp_path)), data)
        assert scores.look == pytest.approx(expected.look)
        assert scores.look_asymmetric == pytest.approx(expected.look_asymmetric)
        assert scores.distinct_codes == expected.distinct_codes
    assert len(found) == 1


@pytest.mark.parametrize("many_labels", [False, True])
def test_features_themselves_are_scored_without_a_model(tmp_path, many_labels):
    source = clouds_source(tmp_path, classes=8, many_labels=many_labels)
    planned = next(run for run in quick_runs(source, "unseen") if run.row == "features")
    done = execute_run(planned, tmp_path)
    folder = run_folder(planned, tmp_path)
    assert {file.name for file in folder.iterdir()} == {
        "identity.json",
        "evaluation.json",
        "run.json",
        "scores.json",
    }
    assert set(done.scores.transfer) == {
        "seen in seen",
        "unseen in unseen",
        "seen in all",
        "unseen in all",
    }
    data = read_features_once(source.file)
    if not many_labels:  # held out are the second half
        query, database = (
            rows[data.labels[rows] >= 4] for rows in (data.split.query, data.split.database)
        )
        seen = data.split.train[data.labels[data.split.train] < 4]
        expected = evaluate_floats(
            *(data.features[rows] for rows in (query, database)),
            *(data.labels[rows] for rows in (query, database)),
            centre=data.features[seen].mean(axis=0),
        )
        part = done.scores.transfer["unseen in unseen"]
        assert (part.queries, part.database) == (len(query), len(database))
        assert part.map == pytest.approx(expected.map)
    assert find_finished(planned, tmp_path).scores == done.scores


def test_a_source_without_queries_of_unseen_classes_is_refused(tmp_path):
    arrays = clouds(classes=6)
    arrays["query"] = arrays["query"][arrays["labels"][arrays["query"]] < 3]
    file = tmp_path / "seen.npz"
    np.savez(file, **arrays)
    source = features_source("seen", file, read_features_once(file))
    planned = next(run for run in quick_runs(source, "unseen") if run.row == "lda-itq")
    with pytest.raises(InputError, match="seen-fixed-halves has no query of a held-out class"):
        execute_run(planned, tmp_path)
    assert not run_folder(planned, tmp_path).exists()
