import numpy as np
import pytest

from orbithash.kernels.hamming import fill_distances, hamming_distances, hamming_distances_reference


def read_only(codes):
    codes = codes.copy()
    codes.flags.writeable = False
    return codes


def unaligned(codes):
    return np.frombuffer(b"x" + codes.tobytes(), dtype=np.uint8, offset=1).reshape(codes.shape)


def every_second_column(codes):
    return np.repeat(codes, 2, axis=1)[:, ::2]


@pytest.mark.parametrize("n_bytes", [2, 16])
@pytest.mark.parametrize("given", [read_only, unaligned, every_second_column, np.asfortranarray])
def test_codes_in_any_memory_are_compared_without_compiling_again(given, n_bytes):
    codes = np.random.default_rng(0).integers(0, 256, (9, n_bytes), dtype=np.uint8)
    expected = hamming_distances_reference(codes, codes)
    hamming_distances(codes, codes)
    compiled = len(fill_distances.__wrapped__.signatures)
    np.testing.assert_array_equal(hamming_distances(given(codes), given(codes)), expected)
    assert len(fill_distances.__wrapped__.signatures) == compiled
