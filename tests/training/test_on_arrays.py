from dataclasses import replace

import numpy as np
import pytest
import torch

import orbithash
from feature_files import clouds
from orbithash.data import LabelledFeatures, Split, Views
from orbithash.encoders import RunRecord, Training
from orbithash.errors import InputError
from orbithash.evaluation import evaluate
from orbithash.training import PRESETS, TrainingSettings, as_method, train_on_arrays
from orbithash.training.on_arrays import fit_hasher

QUICK = TrainingSettings(epochs=10, hidden=128, learning_rate=0.01, validation=0.1)


def data(**options) -> LabelledFeatures:
    arrays = clouds(**options)
    labels = arrays["labels"].astype(bool if arrays["labels"].ndim == 2 else np.int64)
    return LabelledFeatures(
        arrays["features"], labels, Split(arrays["train"], arrays["query"], arrays["database"])
    )


def learn(method="order-aware", settings=QUICK, source=None, **options):
    return train_on_arrays(source or data(), as_method(method), 16, settings, **options)


@pytest.mark.parametrize("many_labels", [False, True])
def test_training_beats_the_random_start(many_labels):
    source = data(many_labels=many_labels)
    # As layers alone: a second path has good codes at once.
    untrained = replace(QUICK, epochs=1, learning_rate=1e-12, head="layers")
    start, _ = learn(settings=untrained, source=source)
    trained, _ = learn(settings=replace(QUICK, epochs=40, head="layers"), source=source)
    before, after = (evaluate(encoder, source).map for encoder in (start, trained))
    assert after > before + 0.1


def test_queries_are_never_looked_at():
    source = data()
    features, labels = source.features.copy(), source.labels.copy()
    features[source.split.query] = 1e6
    labels[source.split.query] = 0
    other = replace(source, features=features, labels=labels)
    vectors = source.features
    np.testing.assert_array_equal(
        learn(source=source)[0].embed(vectors), learn(source=other)[0].embed(vectors)
    )


def test_without_validation_all_rows_train_and_the_last_epoch_is_kept():
    _, history = learn(settings=replace(QUICK, validation=0.0))
    assert all(epoch.validation_map is None for epoch in history)
    training = Training(RunRecord("order-aware", 16), tuple(history))
    assert training.best_epoch() is history[-1]


def test_the_scale_of_the_features_does_not_matter():
    source = data()
    tiny = replace(source, features=source.features * np.float32(2**-10))
    same = learn(source=source)[0].encode(source.features)
    np.testing.assert_array_equal(same, learn(source=tiny)[0].encode(tiny.features))


def test_a_memory_changes_what_is_learned():
    _, with_memory = learn(settings=replace(QUICK, memory=64, batch_size=20))
    _, without = learn(settings=replace(QUICK, batch_size=20))
    assert with_memory[0].loss != without[0].loss


def test_a_loss_that_takes_no_memory_is_refused_one():
    with pytest.raises(InputError, match="dsh takes no memory"):
        learn("dsh", replace(QUICK, memory=64))


def test_a_run_to_start_from_must_fit():
    triplet, _ = learn("triplet")
    with pytest.raises(InputError, match="hidden=128, but here it is 0"):
        learn("triplet-hard-negative", replace(QUICK, hidden=0), init=triplet)
    with pytest.raises(InputError, match="holds a hasher"):
        learn(init=fit_hasher(data(), as_method("itq"), 16, seed=0))
    with pytest.raises(InputError, match="cannot start from another run"):
        orbithash.train(data(), 16, method="itq", init=triplet)


def test_torchs_own_generator_is_left_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    learn()
    assert torch.equal(torch.rand(3), expected)


def test_the_rate_follows_the_size_of_the_batch():
    paper, default = PRESETS["paper"], PRESETS["default"]
    assert paper.scaled_to_batch_size(50).learning_rate == pytest.approx(paper.learning_rate / 2)
    assert default.scaled_to_batch_size(125).learning_rate == pytest.approx(
        default.learning_rate / 2
    )


def test_views_of_training_images_are_learned_from_and_others_are_not():
    source, vectors = data(), data().features
    train, query = source.split.train, source.split.query
    rng = np.random.default_rng(0)

    def with_views(rows):
        noisy = vectors[rows] + rng.normal(size=vectors[rows].shape).astype(np.float32)
        return replace(source, views=Views(noisy, rows))

    plain, theirs, ours = (
        learn(source=each)[0].embed(vectors)
        for each in (source, with_views(query), with_views(train))
    )
    assert np.array_equal(plain, theirs)
    assert not np.array_equal(plain, ours)
