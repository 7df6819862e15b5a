"""Invalid metadata and filters are refused when they are created."""

import json
from pathlib import Path

import numpy as np
import pytest
from jaxtyping import config

from orbithash.errors import InputError
from orbithash.index import Metadata, Where


@pytest.fixture(autouse=True)
def without_type_checks():
    """Disable the type checks of the tests, which would raise first."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


@pytest.mark.parametrize("kind", [Metadata, Where])
@pytest.mark.parametrize("labels", ["wren", ["wren"], ("wren", 3), None])
def test_labels_must_be_a_tuple_of_strings(kind, labels):
    with pytest.raises(InputError, match=r"labels=.*give a tuple of strings"):
        kind(labels=labels)


@pytest.mark.parametrize("kind", [Metadata, Where])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, [2020], np.int64(3)])
def test_fields_must_be_strings_finite_numbers_or_booleans(kind, value):
    with pytest.raises(InputError, match=r"the field 'y' is .*finite numbers"):
        kind(fields={"y": value})
    with pytest.raises(InputError, match=r"the field 3 is 'y'; name fields by strings"):
        kind(fields={3: "y"})
    with pytest.raises(InputError, match=r"give a dictionary"):
        kind(fields=("year", 2020))


@pytest.mark.parametrize("name", ["path", "source", "stamp"])
@pytest.mark.parametrize("value", [Path("a.jpg"), None, b"a.jpg"])
def test_path_source_and_stamp_must_be_strings(name, value):
    with pytest.raises(InputError, match=f"{name}=.*each must be a string"):
        Metadata(**{name: value})


def test_strings_and_floats_of_numpy_are_accepted():
    metadata = Metadata(np.str_("a.jpg"), (np.str_("wren"),), fields={"x": np.float64(0.5)})
    assert json.dumps([metadata.path, metadata.labels, dict(metadata.fields)]) == (
        '["a.jpg", ["wren"], {"x": 0.5}]'
    )
