"""A served index of images, shared by the tests of one module."""

import pytest


@pytest.fixture(scope="module")
def index_path(tmp_path_factory):
    from served_indexes import picture_index  # needs the extra `serve`

    return picture_index(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def client(index_path):
    from served_indexes import client_of

    with client_of(index_path) as client:
        yield client


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    """Reject requests that exceed a limit after a moment instead of two seconds."""
    middleware = pytest.importorskip("orbithash.serve.limits.middleware")
    monkeypatch.setattr(middleware, "MAX_WAIT", 0.05)
