import numpy as np
import pytest

from orbithash.kernels.triplets.rank_lists import rank_list


@pytest.mark.parametrize(
    ("float_type", "integer_type", "bits"), [("f4", "u4", 32), ("f8", "u8", 64)]
)
def test_lists_are_sorted_by_hamming_distance_then_key_then_position(
    float_type, integer_type, bits
):
    rng = np.random.default_rng(0)
    for n in (1, 2, 50, 3000):
        hamming = rng.integers(0, 1 + n // 4, n).clip(max=1024).astype(np.int16)
        keys = rng.random(n).astype(float_type).round(2) * rng.choice([1e-6, 1, 1e3], n).astype(
            float_type
        )
        items = np.flatnonzero(rng.random(n) < 0.9) if n > 1 else np.array([0])
        by_key = items[np.lexsort((items, keys[items], hamming[items]))]
        by_position = items[np.lexsort((items, hamming[items]))]
        assert (rank_list(items, hamming, keys.view(integer_type), bits) == by_key).all()
        assert (rank_list(items, hamming, keys.view(integer_type), 0) == by_position).all()
