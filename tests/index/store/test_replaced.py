"""An index whose folder is removed or replaced while it is open."""

import shutil

import numpy as np
import pytest

from orbithash.errors import ReplacedIndexError
from orbithash.index import Metadata, create_index, open_index
from served_indexes import API, WRITE_KEY, bearer, client_of, with_keys

CODES = np.arange(6, dtype=np.uint8).reshape(3, 2)


def created(folder, *, n=3, n_bits=16, label="old", encoder=None):
    with create_index(folder, n_bits, encoder=encoder) as index:
        index.add(np.arange(n), CODES[:n, : n_bits // 8], [Metadata(labels=(label,))] * n)
    return folder


def replace(folder, new):
    folder.rename(folder.with_suffix(".aside"))
    new.rename(folder)


def test_a_replaced_index_is_opened_again_and_changed_where_it_is_now(tmp_path):
    folder = created(tmp_path / "a.orbit")
    with open_index(folder) as index:
        assert len(index.search(CODES[:1], 10).ids[0]) == 3
        version = index.version()
        replace(folder, created(tmp_path / "b.orbit", n=2, label="new"))
        assert len(index) == 2
        assert index.version() != version
        assert len(index.search(CODES[:1], 10).ids[0]) == 2
        assert index.label_counts() == {"new": 2}
        replace(folder.rename(tmp_path / "x.orbit"), created(tmp_path / "c.orbit", n=1))
        (tmp_path / "x.orbit").rename(folder)
        ids = index.add(codes=CODES[2:])  # the first thing that notices
    with open_index(folder) as index:
        assert index.get(ids).codes.tolist() == CODES[2:].tolist()


def test_nothing_is_stored_in_a_folder_that_was_removed(tmp_path):
    folder = created(tmp_path / "a.orbit")
    with open_index(folder) as index:
        shutil.rmtree(folder)
        for use in (
            lambda: index.add(codes=CODES),
            lambda: index.remove([0]),
            lambda: len(index),
            lambda: index.search(CODES[:1], 1),
            index.label_counts,
        ):
            with pytest.raises(ReplacedIndexError, match="was removed while it was open"):
                use()
        created(folder, n=1)
        assert len(index) == 1


@pytest.mark.parametrize("other", [{"n_bits": 8}, {"encoder": b"another"}])
def test_an_index_of_other_codes_does_not_take_the_place_of_one(tmp_path, other):
    folder = created(tmp_path / "a.orbit")
    with open_index(folder) as index:
        replace(folder, created(tmp_path / "b.orbit", **other))
        with pytest.raises(ReplacedIndexError, match="replaced by one with other codes; open it"):
            index.add(codes=CODES)
        with pytest.raises(ReplacedIndexError, match="other codes"):
            index.search(CODES[:1], 1)


def test_a_server_notices_that_its_index_was_removed_or_replaced(tmp_path, monkeypatch):
    from orbithash.serve.routes import health

    monkeypatch.setattr(health, "CHECK_LIFETIME", 0.0)
    folder = created(tmp_path / "a.orbit")
    item = {"items": [{"code": "0102"}]}
    with client_of(folder, with_keys(), **bearer(WRITE_KEY)) as client:
        assert client.get("/ready").status_code == 200
        folder.rename(tmp_path / "aside.orbit")
        assert client.get("/ready").status_code == 503
        response = client.post(f"{API}/items", json=item)
        assert response.status_code == 503
        assert str(tmp_path) not in response.text
        created(folder, n=1)
        assert client.get("/ready").status_code == 200
        assert client.post(f"{API}/items", json=item).json() == {"ids": [1]}
    with open_index(folder) as index:
        assert len(index) == 2
