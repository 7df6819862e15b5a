"""One contract over the whole registry."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from orbithash.errors import InputError
from orbithash.hashers import HASHERS
from orbithash.hashers.base import SupervisedHasher

# Methods that learn in steps need few of them for what is asked here.
FEW_STEPS = {
    "bre": {"n_landmarks": 10, "n_passes": 1},
    "mlh": {"n_steps": 100},
    "ksh": {"n_iter": 3},
}

every_hasher = pytest.mark.parametrize("name", HASHERS)
supervised = pytest.mark.parametrize(
    "name", [name for name, hasher in HASHERS.items() if issubclass(hasher, SupervisedHasher)]
)


def refused_by_the_tests_type_checker(estimator):
    return {
        "check_do_not_raise_errors_in_init_or_set_params": (
            "the check builds estimators from values of senseless types, which the import hook of "
            "these tests refuses before __init__ can take them"
        )
    }


# Two bits, because scikit-learn's checks bring data of three features.
@parametrize_with_checks(
    [HASHERS[name](n_bits=2, **FEW_STEPS.get(name, {})) for name in HASHERS],
    expected_failed_checks=refused_by_the_tests_type_checker,
)
def test_hasher_keeps_scikit_learns_contract(estimator, check):
    check(estimator)


@every_hasher
@pytest.mark.parametrize("n_bits", [5, 16])
def test_bits_are_embeddings_above_one_half(name, n_bits):
    X, y = clusters()
    hasher = quick(name, n_bits=n_bits).fit(X, y)
    embeddings, bits = hasher.project(X), hasher.transform(X)
    assert bits.shape == (len(X), n_bits)
    assert bits.dtype == bool
    assert embeddings.min() >= 0
    assert embeddings.max() <= 1
    np.testing.assert_array_equal(bits, embeddings > 0.5)


@every_hasher
def test_the_same_random_state_gives_the_same_bits(name):
    X, y = clusters()
    first, second = (quick(name, n_bits=8).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(first.transform(X), second.transform(X))


@every_hasher
def test_images_of_one_cluster_are_nearer_than_others(name):
    X, y = clusters()
    bits = quick(name, n_bits=16).fit(X, y).transform(X)
    distances = (bits[:, None] != bits).mean(axis=2)
    similar = y[:, None] == y
    assert distances[similar].mean() < 0.9 * distances[~similar].mean()


@every_hasher
def test_single_precision_features_give_nearly_the_same_bits(name):
    X, y = clusters()
    double = quick(name, n_bits=8).fit(X, y)
    single = double.transform(X.astype(np.float32))
    assert (single == double.transform(X)).mean() > 0.99


@every_hasher
def test_a_hasher_that_was_not_fitted_says_so(name):
    X, _ = clusters()
    with pytest.raises(NotFittedError):
        quick(name, n_bits=8).project(X)


@every_hasher
def test_repeated_rows_of_single_precision_can_be_learned_from(name):
    X, y = clusters()
    X, y = np.tile(X, (5, 1)).astype(np.float32), np.tile(y, 5)
    bits = quick(name, n_bits=8).fit(X, y).transform(X)
    np.testing.assert_array_equal(bits[:120], bits[-120:])


@every_hasher
@pytest.mark.parametrize("n_bits", [0, -3, 2.5])
def test_a_senseless_number_of_bits_is_refused(name, n_bits):
    X, y = clusters()
    with pytest.raises(InputError, match="n_bits"):
        HASHERS[name]().set_params(n_bits=n_bits).fit(X, y)


@every_hasher
def test_features_that_are_not_finite_are_refused(name):
    X, y = clusters()
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        HASHERS[name](n_bits=4).fit(X, y)


@pytest.mark.parametrize("name", ["pca", "itq"])
def test_more_bits_than_principal_components_are_refused(name):
    X, _ = clusters()
    with pytest.raises(InputError, match=r"n_bits=33, .* at most 24 .* fewer bits"):
        HASHERS[name](n_bits=33).fit(X)


@pytest.mark.parametrize("name", ["pca", "sh", "itq"])
def test_features_without_any_difference_are_refused(name):
    with pytest.raises(InputError, match="all rows are the same"):
        HASHERS[name](n_bits=4).fit(np.outer(np.arange(1, 9), np.ones(6)))


@every_hasher
def test_only_directions_count_unless_told_otherwise(name):
    X, y = clusters()
    lengths = np.geomspace(0.1, 10, len(X))[:, None]
    hasher = quick(name, n_bits=8).fit(X, y)
    np.testing.assert_array_equal(hasher.transform(X), hasher.transform(X * lengths))
    hasher.set_params(normalize=False).fit(X, y)
    assert (hasher.transform(X) != hasher.transform(X * lengths)).any()


@pytest.mark.parametrize("name", ["lsh", "sh"])
def test_methods_without_that_limit_give_more_bits_than_features(name):
    X, _ = clusters()
    bits = quick(name, n_bits=100).fit(X).transform(X)
    assert len(np.unique(bits.T, axis=0)) > 90  # and they are not copies of each other


@supervised
def test_one_label_and_its_one_hot_row_mean_the_same(name):
    X, y = clusters(classes=3)
    by_number = quick(name, n_bits=4).fit(X, y)
    one_hot = quick(name, n_bits=4).fit(X, np.eye(3, dtype=int)[y])
    np.testing.assert_array_equal(by_number.transform(X), one_hot.transform(X))


@supervised
def test_images_with_several_labels_or_none_are_taken(name):
    X, _ = clusters()
    labels = np.random.default_rng(0).random((120, 4)) < 0.4
    labels[7] = False
    assert quick(name, n_bits=4).fit(X, labels).transform(X).shape == (120, 4)


@supervised
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, "requires y"),
        (np.arange(120) / 7, "integers"),
        (np.full((120, 2), 3), "not all 0 or 1"),
        (np.zeros((120, 2, 2)), "0-1"),
        (np.arange(120), "no two rows share a label"),
        (np.zeros(120, dtype=int), "second class"),
    ],
)
def test_labels_that_do_not_fit_are_refused(name, labels, message):
    X, _ = clusters()
    with pytest.raises(InputError, match=message):
        HASHERS[name](n_bits=4).fit(X, labels)


@supervised
def test_labels_of_another_length_are_refused(name):
    X, y = clusters()
    with pytest.raises(InputError, match="119 training labels for 120"):
        HASHERS[name](n_bits=4).fit(X, y[:-1])


def quick(name: str, n_bits: int):
    return HASHERS[name](n_bits=n_bits, random_state=0, **FEW_STEPS.get(name, {}))


def clusters(n: int = 120, features: int = 24, classes: int = 4):
    """Features around a centre per class, and the classes."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % classes
    centres = rng.standard_normal((classes, features)) * 2
    return centres[y] + rng.standard_normal((n, features)), y
