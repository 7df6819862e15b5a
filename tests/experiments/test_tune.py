import json
import tomllib
from dataclasses import replace

import numpy as np
import pytest
import torch

from feature_files import clouds
from orbithash.data import read_features
from orbithash.errors import InputError
from orbithash.experiments.tables.sources import features_source
from orbithash.experiments.tables.spec import parse_tuning_records
from orbithash.experiments.tune import (
    SettingsSearch,
    best_tuning_trial,
    default_values,
    search_settings,
    search_space,
)
from orbithash.losses import LOSSES
from orbithash.training.methods import as_method
from orbithash.training.settings import read_settings


def make_search(folder, *, method="order-aware", scramble=False, name="clouds"):
    """A search of a few quick trials, and its data."""
    arrays = clouds(classes=3, per_class=12)
    if scramble:  # all rows except the training rows
        others = np.setdiff1d(np.arange(len(arrays["labels"])), arrays["train"])
        arrays["features"][others] = 0
    file = folder / f"{name}.npz"
    np.savez(file, **arrays)
    data = read_features(file)
    return SettingsSearch(method, 8, (features_source(name, file, data),), epochs=2), [data]


def values_and_maps(trials):
    return [(dict(trial.values), dict(trial.maps)) for trial in trials]


def test_the_first_trial_has_the_defaults_and_the_best_is_written(tmp_path):
    search, data = make_search(tmp_path)
    trials = search_settings(search, data, tmp_path / "study", n_trials=3)
    assert dict(trials[0].values) == default_values(search.space())
    assert len({tuple(trial.values.values()) for trial in trials}) == 3
    best = best_tuning_trial(trials)
    chosen = read_settings(tmp_path / "study" / "best.toml")
    assert chosen.method == "order-aware"
    assert chosen.settings["learning_rate"] == best.values["learning_rate"]
    assert chosen.options_at(16) == {"margin": best.values["margin_of_bits"] * 16}
    assert "validation" not in chosen.settings  # training with them uses all rows
    written = tomllib.loads((tmp_path / "study" / "best.toml").read_text())["search"]
    assert written["trials"] == 3
    assert written["validation_map"] == dict(best.maps)
    # It can be copied to tuning.toml.
    assert parse_tuning_records({"about": "", "rows": {"order-aware": written}}).rows
    listed = json.loads((tmp_path / "study" / "trials.json").read_text())["trials"]
    assert [trial["map"] for trial in listed] == [trial.map for trial in trials]


def test_a_stopped_search_resumes(tmp_path):
    search, data = make_search(tmp_path)

    def stop(trials):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search_settings(search, data, tmp_path / "study", n_trials=3, after_trial=stop)
    counts = []
    trials = search_settings(
        search,
        data,
        tmp_path / "study",
        n_trials=3,
        after_trial=lambda trials: counts.append(len(trials)),
    )
    assert counts == [2, 3]
    assert dict(trials[0].values) == default_values(search.space())
    assert search_settings(search, data, tmp_path / "study", n_trials=3) == trials


def test_only_training_rows_are_used(tmp_path):
    search, data = make_search(tmp_path)
    scrambled, other = make_search(tmp_path, scramble=True, name="clouds")
    plain = search_settings(search, data, tmp_path / "one", n_trials=2)
    changed = search_settings(scrambled, other, tmp_path / "other", n_trials=2)
    assert values_and_maps(plain) == values_and_maps(changed)


def test_several_sources_are_scored_by_their_mean(tmp_path):
    search, data = make_search(tmp_path)
    second, more = make_search(tmp_path, name="second")
    both = replace(search, sources=search.sources + second.sources)
    (trial,) = search_settings(both, data + more, tmp_path / "study", n_trials=1)
    assert trial.maps.keys() == {"clouds", "second"}
    assert trial.map == pytest.approx(np.mean(list(trial.maps.values())))


def test_a_folder_of_another_search_is_refused(tmp_path):
    search, data = make_search(tmp_path)
    search_settings(search, data, tmp_path / "study", n_trials=1)
    with pytest.raises(InputError, match="holds a search with another n_bits"):
        search_settings(replace(search, n_bits=16), data, tmp_path / "study", n_trials=1)


def test_only_settings_that_the_loss_has_are_searched():
    assert "margin_of_bits" in search_space("triplet", epochs=10)
    assert "reduction" not in search_space("dsh", epochs=10)
    assert "weight" in search_space("order-aware", epochs=10)["reduction"].choices
    # All weights of plain triplets are 1.
    assert "weight" not in search_space("triplet", epochs=10)["reduction"].choices
    assert "margin_of_bits" not in search_space("orthohash", epochs=10)  # its margin is an angle


@pytest.mark.parametrize("method", LOSSES)
def test_the_first_trial_has_the_defaults_of_the_loss(method):
    values = default_values(search_space(method, epochs=150))
    options = {name: values[name] for name in ("reduction",) if name in values}
    if "margin_of_bits" in values:
        options["margin"] = 16 * values["margin_of_bits"]
    rng = torch.Generator().manual_seed(0)
    embeddings, labels = torch.rand(12, 16, generator=rng), torch.arange(12) % 3
    losses = [
        as_method(method, values).loss(n_bits=16, n_classes=3, seed=0) for values in ({}, options)
    ]
    default, first = (loss(embeddings, labels).item() for loss in losses)
    assert first == pytest.approx(default)


def test_trials_with_other_defaults_are_not_resumed(tmp_path, monkeypatch):
    search, data = make_search(tmp_path)
    search_settings(search, data, tmp_path / "study", n_trials=1)
    monkeypatch.setattr("orbithash.experiments.tune.RECIPE", -1)
    with pytest.raises(InputError, match="holds a search with another recipe"):
        search_settings(search, data, tmp_path / "study", n_trials=2)


def test_a_hasher_has_nothing_to_tune(tmp_path):
    search, data = make_search(tmp_path, method="itq")
    with pytest.raises(InputError, match="'itq' is not a loss"):
        search_settings(search, data, tmp_path / "study", n_trials=1)
