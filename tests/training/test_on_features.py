from dataclasses import replace

import numpy as np
import pytest
import torch

from feature_files import clouds
from orbithash.data import LabelledFeatures, Split, Views
from orbithash.errors import InputError
from orbithash.evaluation import evaluate_encoder, mean_average_precision
from orbithash.training import PRESETS, TrainingSettings, train_on_features

QUICK = TrainingSettings(epochs=10, hidden=128, learning_rate=0.01, validation=0.1)


def data(**options) -> LabelledFeatures:
    arrays = clouds(**options)
    labels = arrays["labels"].astype(bool if arrays["labels"].ndim == 2 else np.int64)
    return LabelledFeatures(
        arrays["features"], labels, Split(arrays["train"], arrays["query"], arrays["database"])
    )


def learn(method="order-aware", settings=QUICK, source=None, **options):
    return train_on_features(
        source or data(), method, 16, settings, score=mean_average_precision, **options
    )


@pytest.mark.parametrize("many_labels", [False, True])
def test_training_beats_the_random_start(many_labels):
    source = data(many_labels=many_labels)
    start = learn(settings=replace(QUICK, epochs=1, learning_rate=1e-12), source=source)
    trained = learn(settings=replace(QUICK, epochs=40), source=source)
    before, after = (evaluate_encoder(t.encoder, source).map for t in (start, trained))
    assert after > before + 0.1


def test_queries_are_never_looked_at():
    source = data()
    features, labels = source.features.copy(), source.labels.copy()
    features[source.split.query] = 1e6
    labels[source.split.query] = 0
    other = replace(source, features=features, labels=labels)
    vectors = source.features
    np.testing.assert_array_equal(
        learn(source=source).encoder.embed(vectors), learn(source=other).encoder.embed(vectors)
    )


def test_without_validation_all_rows_train_and_the_last_epoch_is_kept():
    trained = learn(settings=replace(QUICK, validation=0.0))
    assert all(epoch.validation_map is None for epoch in trained.history)
    assert trained.best_epoch() is trained.history[-1]


def test_the_scale_of_the_features_does_not_matter():
    source = data()
    tiny = replace(source, features=source.features * np.float32(2**-10))
    same = learn(source=source).encoder.encode(source.features)
    np.testing.assert_array_equal(same, learn(source=tiny).encoder.encode(tiny.features))


def test_a_memory_changes_what_is_learned():
    with_memory = learn(settings=replace(QUICK, memory=64, batch_size=20))
    without = learn(settings=replace(QUICK, batch_size=20))
    assert with_memory.history[0].loss != without.history[0].loss


def test_a_loss_that_takes_no_memory_is_refused_one():
    with pytest.raises(InputError, match="dsh takes no memory"):
        learn("dsh", replace(QUICK, memory=64))


def test_a_run_to_start_from_must_fit():
    triplet = learn("triplet").encoder
    with pytest.raises(InputError, match="hidden=128, but here it is 0"):
        learn("triplet-hard-negative", replace(QUICK, hidden=0), init=triplet)
    with pytest.raises(InputError, match="holds a hasher"):
        learn(init=learn("itq").encoder)
    with pytest.raises(InputError, match="cannot start from another run"):
        learn("itq", init=triplet)


def test_torchs_own_generator_is_left_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    learn()
    assert torch.equal(torch.rand(3), expected)


def test_the_rate_follows_the_size_of_the_batch():
    paper, default = PRESETS["paper"], PRESETS["default"]
    assert paper.for_batches_of(50).learning_rate == pytest.approx(paper.learning_rate / 2)
    assert default.for_batches_of(125).learning_rate == pytest.approx(default.learning_rate / 2)


def test_views_of_training_images_are_learned_from_and_others_are_not():
    source, vectors = data(), data().features
    train, query = source.split.train, source.split.query
    rng = np.random.default_rng(0)

    def with_views(rows):
        noisy = vectors[rows] + rng.normal(size=vectors[rows].shape).astype(np.float32)
        return replace(source, views=Views(noisy, rows))

    plain, theirs, ours = (
        learn(source=each).encoder.embed(vectors)
        for each in (source, with_views(query), with_views(train))
    )
    assert np.array_equal(plain, theirs)
    assert not np.array_equal(plain, ours)
