from orbithash.data.benchmarks import DATASETS
from orbithash.experiments.choosing import Trial, best_trial, grid, run_trials
from orbithash.experiments.encoding import DeepSettings

BASE = DeepSettings(margin=0.0, learning_rate=0.0, epochs=2, images_per_class=20)


def test_the_grid_pairs_every_margin_with_every_rate():
    settings = grid(BASE, margins=[1.0, 2.0], learning_rates=[0.1, 0.2])
    pairs = [(candidate.margin, candidate.learning_rate) for candidate in settings]
    assert pairs == [(1.0, 0.1), (1.0, 0.2), (2.0, 0.1), (2.0, 0.2)]


def test_the_highest_validation_map_wins_and_the_first_of_equals():
    trials = [Trial(BASE, (), score) for score in (0.3, 0.9, 0.9)]
    assert best_trial(trials) is trials[1]


def test_a_trial_trains_from_every_seed_and_is_scored_on_validation_images():
    candidates = grid(BASE, margins=[2.0], learning_rates=[1e-9, 0.01])
    epochs = []
    trials = run_trials(
        DATASETS["digits"](), "triplet", 16, candidates, seeds=[0, 1], after_epoch=epochs.append
    )
    assert [len(trial.codes) for trial in trials] == [2, 2]
    assert len(epochs) == 2 * 2 * BASE.epochs
    # A rate of nearly 0 learns nothing; the trials must show it.
    assert 0 < trials[0].map < trials[1].map < 1
