import numpy as np
import pytest

from orbithash.kernels.rank_lists import rank_list


@pytest.mark.parametrize(("number", "integer", "bits"), [("f4", "u4", 32), ("f8", "u8", 64)])
def test_lists_are_sorted_by_hamming_distance_then_key_then_position(number, integer, bits):
    rng = np.random.default_rng(0)
    for n in (1, 2, 50, 3000):
        hamming = rng.integers(0, 1 + n // 4, n).clip(max=1024).astype(np.int16)
        keys = rng.random(n).astype(number).round(2) * rng.choice([1e-6, 1, 1e3], n).astype(number)
        members = np.flatnonzero(rng.random(n) < 0.9) if n > 1 else np.array([0])
        by_key = members[np.lexsort((members, keys[members], hamming[members]))]
        by_position = members[np.lexsort((members, hamming[members]))]
        assert (rank_list(members, hamming, keys.view(integer), bits) == by_key).all()
        assert (rank_list(members, hamming, keys.view(integer), 0) == by_position).all()
