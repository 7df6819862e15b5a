import pytest

from orbithash.data import LabelledImages
from orbithash.data.sources import open_source
from orbithash.errors import InputError


def test_the_installed_dataset_is_opened_by_its_name():
    assert isinstance(open_source("digits"), LabelledImages)


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
