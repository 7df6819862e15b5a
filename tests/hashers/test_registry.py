"""The contract of all hashers in the registry."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from orbithash.errors import InputError
from orbithash.hashers import HASHERS
from orbithash.hashers.base import SupervisedHasher

# A few iterations are enough for these tests.
FEW_STEPS = {
    "bre": {"n_landmarks": 10, "n_passes": 1},
    "mlh": {"n_steps": 100},
    "ksh": {"n_iter": 3},
}

every_hasher = pytest.mark.parametrize("name", HASHERS)
supervised = pytest.mark.parametrize(
    "name", [name for name, hasher in HASHERS.items() if issubclass(hasher, SupervisedHasher)]
)


def rejected_by_the_type_checker(estimator):
    return {
        "check_do_not_raise_errors_in_init_or_set_params": (
            "the check passes values of arbitrary types, which the type checker of these tests "
            "rejects before __init__ runs"
        )
    }


# Two bits, because scikit-learn's checks use data of three features.
@parametrize_with_checks(
    [HASHERS[name](n_bits=2, **FEW_STEPS.get(name, {})) for name in HASHERS],
    expected_failed_checks=rejected_by_the_type_checker,
)
def test_hasher_passes_scikit_learns_estimator_checks(estimator, check):
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
def test_codes_of_one_cluster_are_closer_than_those_of_others(name):
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
def test_an_unfitted_hasher_raises(name):
    X, _ = clusters()
    with pytest.raises(NotFittedError):
        quick(name, n_bits=8).project(X)


@every_hasher
def test_fitting_to_repeated_rows_in_single_precision_works(name):
    X, y = clusters()
    X, y = np.tile(X, (5, 1)).astype(np.float32), np.tile(y, 5)
    bits = quick(name, n_bits=8).fit(X, y).transform(X)
    np.testing.assert_array_equal(bits[:120], bits[-120:])


@every_hasher
@pytest.mark.parametrize("n_bits", [0, -3, 2.5])
def test_an_invalid_number_of_bits_is_refused(name, n_bits):
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
def test_constant_features_are_refused(name):
    with pytest.raises(InputError, match="all rows are identical"):
        HASHERS[name](n_bits=4).fit(np.outer(np.arange(1, 9), np.ones(6)))


@every_hasher
def test_only_directions_count_unless_normalize_is_off(name):
    X, y = clusters()
    lengths = np.geomspace(0.1, 10, len(X))[:, None]
    hasher = quick(name, n_bits=8).fit(X, y)
    np.testing.assert_array_equal(hasher.transform(X), hasher.transform(X * lengths))
    hasher.set_params(normalize=False).fit(X, y)
    assert (hasher.transform(X) != hasher.transform(X * lengths)).any()


@pytest.mark.parametrize("name", ["lsh", "sh"])
def test_some_methods_can_have_more_bits_than_features(name):
    X, _ = clusters()
    bits = quick(name, n_bits=100).fit(X).transform(X)
    assert len(np.unique(bits.T, axis=0)) > 90  # not copies of each other


@supervised
def test_integer_and_one_hot_labels_give_the_same_bits(name):
    X, y = clusters(classes=3)
    by_number = quick(name, n_bits=4).fit(X, y)
    one_hot = quick(name, n_bits=4).fit(X, np.eye(3, dtype=int)[y])
    np.testing.assert_array_equal(by_number.transform(X), one_hot.transform(X))


@supervised
def test_images_with_several_labels_or_none_are_accepted(name):
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
        (np.zeros(120, dtype=int), "at least two classes"),
    ],
)
def test_invalid_labels_are_refused(name, labels, message):
    X, _ = clusters()
    with pytest.raises(InputError, match=message):
        HASHERS[name](n_bits=4).fit(X, labels)


@supervised
def test_a_wrong_number_of_labels_is_refused(name):
    X, y = clusters()
    with pytest.raises(InputError, match="119 training labels for 120"):
        HASHERS[name](n_bits=4).fit(X, y[:-1])


def quick(name: str, n_bits: int):
    return HASHERS[name](n_bits=n_bits, random_state=0, **FEW_STEPS.get(name, {}))


def clusters(n: int = 120, features: int = 24, classes: int = 4):
    """Return features in one cluster per class, and the classes."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % classes
    centres = rng.standard_normal((classes, features)) * 2
    return centres[y] + rng.standard_normal((n, features)), y
