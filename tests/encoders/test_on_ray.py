import sys
from functools import partial

import numpy as np
import pytest

from feature_files import clouds
from indexed_runs import feature_run
from orbithash.data import Vectors
from orbithash.encoders import encode_source, load_run
from orbithash.encoders.on_ray import encode_on_ray, map_on_ray, ray_batches
from orbithash.errors import InputError, MissingExtraError, ServerError
from ray_clusters import RAYS_OWN_WARNINGS

pytestmark = RAYS_OWN_WARNINGS


def test_without_the_extra_the_line_that_installs_it_is_shown(tmp_path, monkeypatch):
    encoder, vectors = load_run(feature_run(tmp_path / "run")), Vectors(clouds()["features"])
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'orbithash\[ray\]'"):
        encode_on_ray(encoder, vectors, np.arange(100), address="local")


def test_a_source_of_another_kind_is_refused_before_a_cluster_is_started(tmp_path):
    encoder = load_run(feature_run(tmp_path / "run"))
    with pytest.raises(InputError, match="this run encodes features"):
        encode_on_ray(encoder, ImagesOfNothing(), np.arange(3), address="local")


@pytest.mark.slow
def test_features_have_the_same_codes(tmp_path, ray_address):
    encoder = load_run(feature_run(tmp_path / "run"))
    vectors = Vectors(np.random.default_rng(0).standard_normal((3000, 16)).astype(np.float32))
    rows, done = np.arange(3000)[::-1], []
    encoded = encode_on_ray(
        *(encoder, vectors, rows, lambda n, total: done.append((n, total))), address=ray_address
    )
    expected = encode_source(encoder, vectors, rows=rows)
    np.testing.assert_array_equal(encoded.rows, expected.rows)
    np.testing.assert_array_equal(encoded.codes, expected.codes)
    assert done[0] == (256, 3000)
    assert done[-1] == (3000, 3000)


@pytest.mark.slow
def test_an_error_on_a_worker_is_raised_as_it_would_be_here(tmp_path, ray_address):
    encoder = load_run(feature_run(tmp_path / "run"))
    wrong = Vectors(np.zeros((300, 5), np.float32))
    with pytest.raises(InputError, match=r"got features of shape \(256, 5\)"):
        encode_on_ray(encoder, wrong, np.arange(300), address=ray_address)
    vectors, batches = Vectors(np.zeros((300, 16), np.float32)), ray_batches(np.arange(300))
    with pytest.raises(ServerError, match="encoding on Ray failed: TypeError"):
        list(
            map_on_ray(encoder, vectors, batches, address=ray_address, then=partial("%d%d".__mod__))
        )


def test_an_address_without_a_cluster_is_named(tmp_path):
    pytest.importorskip("ray", reason="the extra ray is not installed")
    encoder, vectors = load_run(feature_run(tmp_path / "run")), Vectors(clouds()["features"])
    with pytest.raises(ServerError, match=r"no Ray cluster answers at 127\.0\.0\.1:1"):
        encode_on_ray(encoder, vectors, np.arange(100), address="127.0.0.1:1")


class ImagesOfNothing:
    """Images that no worker could read."""

    paths, labels, classes, split = ("a", "b", "c"), np.zeros(3, int), ("",), None

    def __len__(self) -> int:
        return 3

    def image(self, row: int) -> None:
        raise NotImplementedError

    def stamp(self, row: int) -> str:
        return ""
