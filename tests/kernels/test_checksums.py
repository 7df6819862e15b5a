"""Checksums of words: compiled as in plain numpy, and different for every changed word."""

import numpy as np
import pytest

from orbithash.kernels.checksums import run_checksums
from orbithash.kernels.plain_checksums import run_checksums_reference


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 128, 1000, 4096])
def test_the_compiled_loop_equals_the_reference(n):
    words = np.random.default_rng(n).integers(0, 1 << 64, n, dtype=np.uint64)
    for run in (64, 128, 1024):
        np.testing.assert_array_equal(
            run_checksums(words, run), run_checksums_reference(words, run)
        )


def test_every_flipped_bit_and_every_swap_changes_the_checksum():
    words = np.random.default_rng(0).integers(0, 1 << 64, 256, dtype=np.uint64)
    (expected,) = run_checksums_reference(words, 256)
    for bit in range(0, 64 * 256, 37):
        changed = words.copy()
        changed[bit // 64] ^= np.uint64(1) << np.uint64(bit % 64)
        assert run_checksums_reference(changed, 256)[0] != expected
    for places in ([0, 1], [0, 64], [3, 131], [254, 255]):
        changed = words.copy()
        changed[places] = changed[places[::-1]]
        assert run_checksums_reference(changed, 256)[0] != expected


def test_flips_of_the_same_bit_do_not_cancel():
    words = np.zeros(256, dtype=np.uint64)
    (expected,) = run_checksums_reference(words, 256)
    for bit in (0, 31, 63):
        for other in (1, 64, 65, 128, 255):
            changed = words.copy()
            changed[[0, other]] ^= np.uint64(1) << np.uint64(bit)
            assert run_checksums_reference(changed, 256)[0] != expected
