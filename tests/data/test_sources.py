import numpy as np
import pytest
import torch

from orbithash.data import LabelledFeatures, Vectors, open_unlabelled
from orbithash.data.sources import open_source
from orbithash.errors import InputError


def test_the_installed_dataset_is_opened_by_its_name():
    assert isinstance(open_source("digits"), LabelledFeatures)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("cub200_2011", "write cub200_2011:FOLDER"),
        ("nowhere/at/all", "neither a folder, nor a .csv, .parquet or .npz, nor a dataset"),
        ("birds:folder", "cub200_2011:FOLDER"),
        ("none.csv", "there is no table none.csv"),
        ("none.npz", "there is no features file none.npz"),
        ("cub200_2011:nowhere", "nowhere/images.txt is missing"),
    ],
)
def test_the_error_for_an_unknown_source_lists_the_possible_ones(source, message):
    with pytest.raises(InputError, match=message):
        open_source(source)


@pytest.mark.parametrize("as_given", [np.asarray, np.ndarray.tolist, torch.as_tensor])
def test_arrays_lists_and_tensors_are_features_that_all_train(as_given):
    features, labels = np.arange(12.0).reshape(4, 3), np.array([0, 0, 7, 7])
    data = open_source((as_given(features), as_given(labels)))
    assert data.features.dtype == np.float32
    np.testing.assert_array_equal(data.features, features)
    assert data.labels.tolist() == [0, 0, 7, 7]
    assert data.split.train.tolist() == [0, 1, 2, 3]
    assert not data.split.has_queries


def test_whole_numbers_are_features_too():
    pixels = np.arange(48, dtype=np.uint8).reshape(3, 1, 4, 4)
    data = open_source((pixels, [0, 0, 1]))
    assert data.features.dtype == np.float32
    np.testing.assert_array_equal(data.features, pixels)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (([[1.0], [2.0]], [0]), "got 1 labels for 2 rows"),
        (([1.0, 2.0], [0, 1]), r"features are float64 of shape \(2,\)"),
        (([["a"], ["b"]], [0, 1]), "they must be floats"),
        (([[np.nan], [2.0]], [0, 1]), "1 rows of features contain NaN"),
        (([[1.0], [2.0]], ["cat", "dog"]), "they must be one integer per row"),
        (3, "got a source of type int; give a path"),
        (None, "got a source of type NoneType; give a path"),
    ],
)
def test_what_is_no_source_is_refused(source, message):
    with pytest.raises(InputError, match=message):
        open_source(source)


def test_opened_data_is_a_source():
    data = open_source("digits")
    assert open_source(data) is data


def test_an_array_alone_can_be_encoded():
    vectors = open_unlabelled(np.ones((2, 3)))
    assert isinstance(vectors, Vectors)
    assert vectors.features.dtype == np.float32
    assert open_unlabelled(vectors) is vectors
