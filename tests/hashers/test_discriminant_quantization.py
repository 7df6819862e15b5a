import numpy as np
import pytest

from orbithash.codes import pack
from orbithash.errors import InputError
from orbithash.evaluation import evaluate_codes
from orbithash.hashers import DiscriminantQuantization, IterativeQuantization
from orbithash.hashers.discriminant_quantization import whitening_matrix, within_class_scatter


def test_scatter_is_that_of_a_loop_over_images_and_their_labels():
    rng = np.random.default_rng(0)
    X, labels = rng.standard_normal((40, 5)), rng.random((40, 4)) < 0.4
    shares = [row / row.sum() if row.any() else row * 0.0 for row in labels]
    means = [
        np.average(X, axis=0, weights=[share[c] for share in shares])
        for c in range(labels.shape[1])
    ]
    scatter, total = np.zeros((5, 5)), 0.0
    for x, share in zip(X, shares, strict=True):
        for c, weight in enumerate(share):
            scatter += weight * np.outer(x - means[c], x - means[c])
            total += weight
    np.testing.assert_allclose(within_class_scatter(X, labels), scatter / total, atol=1e-12)


def test_whitened_features_have_the_same_scatter_in_every_direction():
    X, y = stretched_classes()
    labels = y[:, None] == np.unique(y)
    W = whitening_matrix(within_class_scatter(X, labels), 1e-9)
    whitened = within_class_scatter(X @ W, labels)
    np.testing.assert_allclose(whitened / whitened[0, 0], np.eye(X.shape[1]), atol=1e-6)


def test_classes_that_were_not_fitted_are_separated_better_than_by_itq():
    X, y = stretched_classes()
    seen = y < 10
    maps = []
    for shrinkage in (1.0, 0.05):  # 1 is plain ITQ
        hasher = DiscriminantQuantization(
            n_bits=8, shrinkage=shrinkage, normalize=False, random_state=0
        ).fit(X[seen], y[seen])
        codes, labels = pack(hasher.transform(X[~seen])), y[~seen]
        scores = evaluate_codes(codes, codes, labels, labels, n_bits=8, leave_one_out=True)
        maps.append(scores.map)
    assert maps[1] > maps[0] + 0.1


def test_full_shrinkage_is_plain_itq():
    X, y = stretched_classes()
    options = {"n_bits": 6, "random_state": 0}
    shrunk = DiscriminantQuantization(shrinkage=1.0, **options).fit(X, y)
    plain = IterativeQuantization(**options).fit(X)
    np.testing.assert_array_equal(shrunk.transform(X), plain.transform(X))


@pytest.mark.parametrize("shrinkage", [0, -1, 1.5])
def test_shrinkage_outside_its_range_is_refused(shrinkage):
    X, y = stretched_classes()
    with pytest.raises(InputError, match="above 0, at most 1"):
        DiscriminantQuantization(n_bits=4, shrinkage=shrinkage).fit(X, y)


def test_classes_of_equal_images_are_not_whitened():
    X = np.repeat(np.random.default_rng(0).standard_normal((8, 6)), 3, axis=0)
    y = np.repeat(np.arange(8), 3)
    bits = DiscriminantQuantization(n_bits=4, random_state=0).fit(X, y).transform(X)
    assert (bits[::3] == bits[1::3]).all()


def stretched_classes():
    """Twenty classes whose images differ most in directions that say nothing of the class."""
    rng = np.random.default_rng(1)
    means = rng.standard_normal((20, 16)) * np.r_[np.zeros(8), np.ones(8)]
    noise = rng.standard_normal((20, 25, 16)) * np.r_[np.full(8, 3.0), np.full(8, 0.4)]
    return (means[:, None] + noise).reshape(-1, 16), np.repeat(np.arange(20), 25)
