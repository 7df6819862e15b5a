import numpy as np

from orbithash.hashers import PredictedClass
from orbithash.hashers.predicted_class import far_apart


def test_images_of_a_predicted_class_have_one_code():
    X, y = clouds(classes=6)
    bits = PredictedClass(16, random_state=0).fit(X, y).transform(X)
    assert len(np.unique(bits, axis=0)) == 6
    for label in range(6):
        assert len(np.unique(bits[y == label], axis=0)) == 1


def test_of_several_labels_the_most_probable_one_has_the_code():
    X, y = clouds(classes=3)
    labels = np.eye(3, dtype=bool)[y]
    labels[y == 2, 0] = np.arange((y == 2).sum()) % 3 == 0  # a third of the last class
    hasher = PredictedClass(16, random_state=0).fit(X, labels)
    by_class = [np.unique(hasher.transform(X[y == label]), axis=0) for label in range(3)]
    assert all(len(codes) == 1 for codes in by_class)
    assert len(np.unique(np.concatenate(by_class), axis=0)) == 3


def test_columns_of_labels_that_no_image_has_change_nothing():
    X, y = clouds(classes=3)
    labels = np.eye(5, dtype=bool)[y + 1]  # as if classes 0 and 4 were held out
    with_empty = PredictedClass(16, random_state=0).fit(X, labels)
    without = PredictedClass(16, random_state=0).fit(X, y)
    np.testing.assert_array_equal(with_empty.transform(X), without.transform(X))


def test_code_words_of_many_classes_are_far_apart():
    words = far_apart(100, 32, np.random.RandomState(0))
    distances = (words[:, None] != words).sum(axis=2)
    assert distances[np.triu_indices(100, 1)].min() >= 8


def test_more_classes_than_codes_share_some():
    words = far_apart(20, 4, np.random.RandomState(0))
    assert len(np.unique(words, axis=0)) == 16


def clouds(*, classes, per_class=15, d=8):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(classes), per_class)
    return 6 * rng.standard_normal((classes, d))[y] + rng.standard_normal((len(y), d)), y
