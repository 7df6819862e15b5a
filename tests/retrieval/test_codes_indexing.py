import os

import numpy as np
import pytest

from orbithash.data.code_batches import open_codes
from orbithash.errors import InputError
from orbithash.index import Where, create_index
from orbithash.retrieval.codes_indexing import index_codes

CODES = np.random.default_rng(0).integers(0, 256, (40, 2), dtype=np.uint8)


@pytest.fixture
def index(tmp_path):
    with create_index(tmp_path / "x.orbit", 16) as index:
        yield index


def save(file, **arrays):
    np.savez(file, n_bits=16, **arrays)
    return open_codes(file)


def counts(report):
    return report.new, report.changed, report.unchanged, len(report.gone)


def test_bare_codes_are_stored_once_for_each_file(index, tmp_path):
    codes = save(tmp_path / "a.npz", codes=CODES)
    assert counts(index_codes(index, codes)) == (40, 0, 0, 0)
    assert counts(index_codes(index, codes)) == (0, 0, 40, 0)
    assert counts(index_codes(index, save(tmp_path / "b.npz", codes=CODES))) == (40, 0, 0, 0)
    np.testing.assert_array_equal(index.get(np.arange(80)).codes, np.concatenate([CODES] * 2))
    os.utime(tmp_path / "a.npz", (1, 1))
    with pytest.raises(InputError, match="has changed since its 40 codes were stored"):
        index_codes(index, codes)


@pytest.mark.parametrize("ascending", [True, False])
def test_ids_are_kept_or_given_out(index, tmp_path, ascending):
    ids = np.arange(100, 140)[:: 1 if ascending else -1]
    codes = save(tmp_path / "a.npz", codes=CODES, ids=ids)
    index_codes(index, codes)
    np.testing.assert_array_equal(index.get(ids).codes, CODES)
    other = save(tmp_path / "b.npz", codes=CODES, ids=ids)
    with pytest.raises(InputError, match=r"id 1\d\d is stored already"):
        index_codes(index, other)
    index_codes(index, other, new_ids=True)
    np.testing.assert_array_equal(index.get(np.arange(140, 180)).codes, CODES)


def test_described_codes_are_known_by_their_paths(index, tmp_path):
    paths = np.array([f"{i}.jpg" for i in range(40)])
    codes = save(tmp_path / "a.npz", codes=CODES, paths=paths, labels=np.arange(40) % 3)
    assert counts(index_codes(index, codes)) == (40, 0, 0, 0)
    found = index.search(CODES[4:5], 2, Where(labels=("1",)))
    assert index.get(found.ids[0, :1]).metadata[0].path == "4.jpg"
    changed = CODES.copy()
    changed[7] ^= 1
    codes = save(tmp_path / "a.npz", codes=changed[:39], paths=paths[:39], labels=np.arange(39) % 3)
    report = index_codes(index, codes)
    assert counts(report) == (0, 1, 38, 1)
    assert report.gone == {"39.jpg": 39}
    np.testing.assert_array_equal(index.get([7]).codes, changed[7:8])


def test_codes_of_another_length_are_refused(index, tmp_path):
    np.savez(tmp_path / "a.npz", codes=np.zeros((3, 8), np.uint8), n_bits=64)
    with pytest.raises(InputError, match="has codes of 64 bits and the index of 16"):
        index_codes(index, open_codes(tmp_path / "a.npz"))
