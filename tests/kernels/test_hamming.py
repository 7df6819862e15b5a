import itertools

import numpy as np
import pytest

from orbithash.kernels.hamming import BLOCK_CODES, fill_distances, hamming_distances
from orbithash.kernels.plain_search import hamming_distances_reference

BITS = [4, 7, 8, 63, 64, 65, 128, 300, 1024]


def test_plain_distances_count_the_bits_that_differ():
    left, right = random_codes(3, 100, seed=0), random_codes(4, 100, seed=1)
    distances = hamming_distances_reference(left, right)
    for i, j in itertools.product(range(3), range(4)):
        different = np.unpackbits(left[i]) != np.unpackbits(right[j])
        assert distances[i, j] == sum(different.tolist())


@pytest.mark.parametrize("n_bits", BITS)
def test_distances_match_numpy_for_any_number_of_bits(n_bits):
    left, right = random_codes(19, n_bits, seed=0), random_codes(101, n_bits, seed=1)
    np.testing.assert_array_equal(
        hamming_distances(left, right), hamming_distances_reference(left, right)
    )


@pytest.mark.parametrize("n", [0, 1, BLOCK_CODES - 1, BLOCK_CODES, BLOCK_CODES + 1])
def test_distances_match_numpy_around_the_block_size(n):
    left, right = random_codes(2, 70, seed=0), random_codes(n, 70, seed=1)
    np.testing.assert_array_equal(
        hamming_distances(left, right), hamming_distances_reference(left, right)
    )


def test_opposite_codes_differ_in_every_bit():
    ones, zeros = np.full((1, 128), 255, dtype=np.uint8), np.zeros((1, 128), dtype=np.uint8)
    assert hamming_distances(ones, zeros) == 1024


def random_codes(n, n_bits, seed):
    return np.packbits(np.random.default_rng(seed).random((n, n_bits)) < 0.5, axis=1)


def read_only(codes):
    codes = codes.copy()
    codes.flags.writeable = False
    return codes


def unaligned(codes):
    return np.frombuffer(b"x" + codes.tobytes(), dtype=np.uint8, offset=1).reshape(codes.shape)


def every_second_column(codes):
    return np.repeat(codes, 2, axis=1)[:, ::2]


@pytest.mark.parametrize("n_bytes", [2, 16])
@pytest.mark.parametrize("layout", [read_only, unaligned, every_second_column, np.asfortranarray])
def test_any_memory_layout_is_compared_without_compiling_again(layout, n_bytes):
    codes = np.random.default_rng(0).integers(0, 256, (9, n_bytes), dtype=np.uint8)
    expected = hamming_distances_reference(codes, codes)
    hamming_distances(codes, codes)
    compiled = len(fill_distances.__wrapped__.signatures)
    np.testing.assert_array_equal(hamming_distances(layout(codes), layout(codes)), expected)
    assert len(fill_distances.__wrapped__.signatures) == compiled
