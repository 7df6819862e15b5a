"""One contract for every engine of the registry."""

import numpy as np
import pytest

from orbithash.errors import CodeLengthError, InputError
from orbithash.index import ENGINES, SearchEngine

pytestmark = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES.keys())


def random_codes(n: int, n_bits: int, seed: int = 0) -> np.ndarray:
    bits = np.random.default_rng(seed).random((n, n_bits)) > 0.5
    return np.packbits(bits, axis=1)


def brute_force(queries, ids, codes, k):
    """Every query against every code in plain Python: (distance, id) pairs, sorted."""
    found = []
    for query in queries:
        pairs = [
            (sum(int(a ^ b).bit_count() for a, b in zip(query, code, strict=True)), int(i))
            for i, code in zip(ids, codes, strict=True)
        ]
        found.append(sorted(pairs)[:k])
    return np.array(found)


@pytest.mark.parametrize("n_bits", [4, 8, 13, 64])
@pytest.mark.parametrize("k", [1, 10, 60])
def test_search_equals_brute_force_with_ties_in_the_order_of_ids(engine, n_bits, k):
    codes, queries = random_codes(60, n_bits), random_codes(7, n_bits, seed=1)
    ids = np.random.default_rng(2).permutation(1000)[:60] - 500  # unsorted, negative ones too
    index = engine(n_bits)
    index.add(ids[:25], codes[:25])
    index.add(ids[25:], codes[25:])
    found = index.search(queries, k)
    expected = brute_force(queries, ids, codes, k)
    assert np.array_equal(found.distances, expected[:, :, 0])
    assert np.array_equal(found.ids, expected[:, :, 1])
    assert found.ids.dtype == np.int64


def test_fewer_columns_come_back_when_fewer_codes_are_stored(engine):
    index = engine(16)
    assert index.search(random_codes(3, 16), k=5).ids.shape == (3, 0)
    index.add(np.arange(2), random_codes(2, 16))
    assert index.search(random_codes(3, 16), k=5).ids.shape == (3, 2)
    assert index.search(random_codes(0, 16), k=5).ids.shape == (0, 2)
    assert len(index) == 2


def test_codes_of_another_length_are_refused(engine):
    index = engine(16)
    with pytest.raises(CodeLengthError, match="the codes have 3 bytes where 16 bits need 2"):
        index.add(np.arange(1), random_codes(1, 24))
    index.add(np.arange(1), random_codes(1, 16))
    with pytest.raises(CodeLengthError):
        index.search(random_codes(1, 8), k=1)


def test_an_id_can_be_stored_once_only(engine):
    index = engine(16)
    index.add(np.array([3]), random_codes(1, 16))
    with pytest.raises(InputError, match="id 3 is stored already"):
        index.add(np.array([4, 3]), random_codes(2, 16))
    assert len(index) == 1


def test_ids_must_be_as_many_as_codes_and_k_positive(engine):
    index = engine(16)
    with pytest.raises(InputError, match="got 2 ids for 1 codes"):
        index.add(np.arange(2), random_codes(1, 16))
    with pytest.raises(InputError, match="at least 1 neighbour"):
        index.search(random_codes(1, 16), k=0)


def test_engine_keeps_the_protocol(engine):
    assert isinstance(engine(16), SearchEngine)
