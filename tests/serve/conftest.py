"""A served index of pictures, shared by the tests of one file."""

import pytest


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    from served_indexes import picture_index  # needs the extra

    return picture_index(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def client(place):
    from served_indexes import client_of

    with client_of(place) as client:
        yield client
