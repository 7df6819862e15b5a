import numpy as np
import pytest

from orbithash.kernels.hamming import BLOCK, hamming_distances, hamming_distances_reference

BITS = [4, 7, 8, 63, 64, 65, 128, 300, 1024]


@pytest.mark.parametrize("n_bits", BITS)
def test_distances_match_numpy_for_any_number_of_bits(n_bits):
    left, right = random_codes(19, n_bits, seed=0), random_codes(101, n_bits, seed=1)
    np.testing.assert_array_equal(
        hamming_distances(left, right), hamming_distances_reference(left, right)
    )


@pytest.mark.parametrize("n", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1])
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
