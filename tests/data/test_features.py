import numpy as np
import pytest

from orbithash.data import (
    LabelledFeatures,
    Split,
    Views,
    read_features,
    read_vectors,
    write_features,
)
from orbithash.data.sources import open_source
from orbithash.errors import InputError


def arrays(**changes) -> dict[str, np.ndarray]:
    """The arrays of a valid features file with the changes; None leaves an array out."""
    rng = np.random.default_rng(0)
    valid = {
        "features": rng.normal(size=(6, 3)).astype(np.float16),
        "labels": np.array([0, 0, 1, 1, 2, 2], dtype=np.int32),
        "train": np.array([0, 1, 2], dtype=np.int32),
        "query": np.array([3, 4]),
        "database": np.array([0, 1, 2, 5], dtype=np.uint16),
    }
    return {name: array for name, array in (valid | changes).items() if array is not None}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "features.npz"


def test_a_file_written_by_numpy_is_read(file):
    np.savez(file, **arrays())
    data = open_source(str(file))
    assert data.features.dtype == np.float32
    assert data.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert data.split.database.tolist() == [0, 1, 2, 5]
    assert (data.paths, data.classes) == (None, None)


def test_a_file_for_training_alone_needs_no_queries_and_is_written_without(file):
    np.savez(file, **arrays(query=None, database=None))
    data = read_features(file)
    assert not data.split.has_queries
    write_features(data, file)
    assert not read_features(file).split.has_queries
    with np.load(file) as archive:
        assert set(archive) == {"features", "labels", "train"}


def test_small_images_are_features_too(file):
    pixels = np.random.default_rng(0).random((6, 1, 8, 8)).astype(np.float32)
    np.savez(file, **arrays(features=pixels))
    np.testing.assert_array_equal(read_features(file).features, pixels)
    np.testing.assert_array_equal(read_vectors(file).features, pixels)


def test_several_labels_are_read_as_booleans(file):
    np.savez(file, **arrays(labels=np.eye(6, dtype=np.uint8)))
    assert np.array_equal(read_features(file).labels, np.eye(6, dtype=bool))


def test_labels_may_be_any_integers_unless_classes_name_them(file):
    np.savez(file, **arrays(labels=np.array([-5, 900, 7, 7, 7, 7])))
    assert read_features(file).labels[1] == 900


@pytest.mark.parametrize("labels", [np.arange(4), np.eye(4, 2, dtype=bool)])
def test_written_features_are_read_back(labels, file):
    written = LabelledFeatures(
        features=np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32),
        labels=labels,
        split=Split(train=np.array([0]), query=np.array([1]), database=np.array([0, 2, 3])),
        paths=("a/ä.jpg", "a/b.jpg", "c.jpg", "d.jpg"),
        classes=("w", "x", "y", "z"),
        made_with='{"backbone": "x"}',
    )
    write_features(written, file)
    read = read_features(file)
    np.testing.assert_array_equal(read.features, written.features)
    np.testing.assert_array_equal(read.labels, written.labels)
    for part in ("train", "query", "database"):
        np.testing.assert_array_equal(getattr(read.split, part), getattr(written.split, part))
    assert (read.paths, read.classes) == (written.paths, written.classes)
    assert read.made_with == written.made_with


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": None}, "has no array 'labels', only database, features, query, train"),
        ({"features": np.zeros(6)}, r"features are float64 of shape \(6,\)"),
        ({"features": np.zeros((6, 0))}, r"features are float64 of shape \(6, 0\)"),
        ({"features": np.zeros((6, 2), dtype=int)}, "they must be floats"),
        ({"features": np.full((6, 2), np.nan)}, "6 rows of features contain NaN"),
        ({"features": np.diag([1, 1, np.inf, 1, 1, 1])}, "1 rows .* the first is row 2"),
        ({"features": np.full((6, 2), 1e300)}, "6 rows of features contain NaN or infinity"),
        ({"labels": np.zeros(5, dtype=int)}, "got 5 labels for 6 rows"),
        ({"labels": np.zeros((5, 2), dtype=bool)}, "got 5 labels for 6 rows"),
        ({"labels": np.zeros(6)}, r"labels are float64 of shape \(6,\)"),
        ({"labels": np.array(["a"] * 6)}, "they must be one integer per row"),
        ({"labels": np.full((6, 2), 2)}, r"or 0 and 1 of shape \(rows, classes\)"),
        ({"labels": np.zeros((6, 1, 1), dtype=int)}, r"of shape \(6, 1, 1\)"),
        ({"train": np.array([True] * 6)}, "train is bool .*numpy.flatnonzero"),
        ({"train": np.array([[0, 1]])}, "must be a list of row numbers"),
        ({"query": np.array([0.0, 1.0])}, "query is float64"),
        ({"query": np.array([], dtype=int)}, "no query images"),
        ({"query": None}, "no query images"),
        ({"database": None}, "no database images"),
        ({"database": np.array([0, 6])}, "database rows go from 0 to 6, but there are 6"),
        ({"database": np.array([-1, 2])}, "database rows go from -1 to 2"),
        ({"train": np.array([1, 1])}, "names some train images twice"),
        ({"paths": np.array(["a.jpg"])}, "got 1 paths for 6 rows"),
        ({"paths": np.arange(6)}, "paths is int64 .* must be a list of strings"),
        ({"classes": np.array(["a", "b"])}, "need 3 classes from 0 on, but 2 are named"),
    ],
)
def test_the_error_for_an_invalid_file_names_the_file_and_the_reason(changes, message, file):
    np.savez(file, **arrays(**changes))
    with pytest.raises(InputError, match=message) as caught:
        read_features(file)
    assert str(file) in str(caught.value)


def test_pickled_objects_are_refused_and_never_loaded(file):
    np.savez(file, **arrays(paths=np.array([print] * 6, dtype=object)))
    with pytest.raises(InputError, match="without objects"):
        read_features(file)


def test_files_that_are_not_archives_are_refused(file):
    with pytest.raises(InputError, match="there is no features file"):
        read_features(file)
    file.write_text("hello")
    with pytest.raises(InputError, match="cannot read"):
        read_features(file)
    with file.open("wb") as opened:
        np.save(opened, np.zeros((2, 2)))
    with pytest.raises(InputError, match="one array without a name"):
        read_features(file)
    np.savez(file, **arrays())
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(InputError, match="cannot read"):
        read_features(file)
    file.write_bytes(b"")
    with pytest.raises(InputError, match="cannot read"):
        read_features(file)


def test_features_to_encode_need_neither_labels_nor_split(file):
    np.savez(file, features=arrays()["features"], paths=np.array(list("abcdef")))
    vectors = read_vectors(file)
    assert vectors.features.shape == (6, 3)
    assert (vectors.labels, vectors.paths) == (None, tuple("abcdef"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": None}, "has no array 'features'"),
        ({"labels": np.zeros(5, dtype=int)}, "got 5 labels for 6 rows"),
        ({"paths": np.array(["a"])}, "got 1 paths for 6 rows"),
    ],
)
def test_features_to_encode_with_mismatched_labels_or_paths_are_refused(file, changes, message):
    np.savez(file, **arrays(**changes))
    with pytest.raises(InputError, match=message):
        read_vectors(file)


def test_further_views_are_written_and_read(file):
    np.savez(file, **arrays(views=np.ones((2, 3), np.float32), view_of=np.array([2, 0])))
    data = read_features(file)
    write_features(data, file)
    again = read_features(file)
    assert isinstance(again.views, Views)
    assert again.views.of.tolist() == [2, 0]
    assert np.array_equal(again.views.features, np.ones((2, 3)))


@pytest.mark.parametrize(
    ("views", "view_of", "message"),
    [
        (np.ones((2, 3)), None, "one of the arrays views and view_of is missing"),
        (None, np.array([0]), "one of the arrays views and view_of is missing"),
        (np.ones((2, 4)), np.array([0, 1]), "3 dimensions"),
        (np.ones((2, 3)), np.array([0]), "view_of has 1 rows"),
        (np.ones((2, 3)), np.array([0, 6]), "do not exist"),
        (np.full((1, 3), np.nan), np.array([0]), "NaN"),
    ],
)
def test_mismatched_views_are_refused(views, view_of, message, file):
    np.savez(file, **arrays(views=views, view_of=view_of))
    with pytest.raises(InputError, match=message):
        read_features(file)
