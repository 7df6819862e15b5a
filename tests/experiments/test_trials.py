from dataclasses import replace

import numpy as np
import torch

from orbithash.data import DATASETS
from orbithash.experiments.demo import as_images
from orbithash.experiments.trials import Trial, best_trial, run_trial
from orbithash.training import Hooks, TrainingSettings
from orbithash.training.machine.environment import one_thread

DIGITS = as_images(DATASETS["digits"]())
SETTINGS = TrainingSettings(
    epochs=2, validate_every=2, batch_size=100, images_per_class=10, weight_decay=0.1, hidden=0
)


def trial(*, rate=0.01, seeds=(0,), method="triplet", **options):
    with one_thread():
        return run_trial(
            DIGITS,
            method,
            16,
            replace(SETTINGS, learning_rate=rate),
            {"margin": 2.0},
            seeds=seeds,
            backbone="small-cnn",
            **options,
        )


def test_the_highest_validation_map_wins_and_the_first_of_equals():
    trials = [Trial(SETTINGS, {}, (), score) for score in (0.3, 0.9, 0.9)]
    assert best_trial(trials) is trials[1]


def test_a_trial_trains_from_every_seed_and_is_scored_on_validation_images():
    epochs = []
    trials = [
        trial(rate=rate, seeds=(0, 1), hooks=Hooks(after_epoch=epochs.append))
        for rate in (1e-9, 0.01)
    ]
    assert [len(each.encoders) for each in trials] == [2, 2]
    assert len(epochs) == 2 * 2 * SETTINGS.epochs
    # A rate of nearly 0 learns nothing, and its score must show it.
    assert 0 < trials[0].map < trials[1].map < 1


def test_the_seed_alone_determines_the_codes():
    def codes(seed):
        (encoder,) = trial(seeds=(seed,)).encoders
        return encoder.encode(DIGITS.features)

    first = codes(1)
    assert first.shape == (1797, 2)
    torch.rand(1)  # other draws in between must not matter
    assert np.array_equal(first, codes(1))
    assert not np.array_equal(first, codes(2))


def test_training_restores_torchs_threads_and_generator():
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    trial()
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


def test_training_that_diverges_scores_0(monkeypatch):
    from orbithash.errors import DivergedError
    from orbithash.experiments import trials

    def diverge(*arguments, **options):
        raise DivergedError("the loss became nan")

    monkeypatch.setattr(trials, "train", diverge)
    assert trial(seeds=(0, 1)).map == 0.0
