"""Checksums of words, as fast as memory is read; see plain_checksums.py."""

import numpy as np
from jaxtyping import UInt64
from numba import prange

from orbithash.kernels.plain_checksums import LANES, PRIME, SEED, SHIFT
from orbithash.kernels.threads import parallel_njit

_PRIME, _SEED, _SHIFT = np.uint64(PRIME), np.uint64(SEED), np.uint64(SHIFT)


def run_checksums(words: UInt64[np.ndarray, " n"], run: int) -> UInt64[np.ndarray, " runs"]:
    """Return `run_checksums_reference`, computed by all threads.

    >>> run_checksums(np.zeros(0, dtype=np.uint64), 64)
    array([], dtype=uint64)
    """
    sums = np.empty(-(-len(words) // run), dtype=np.uint64)
    fill_checksums(words, run, sums)
    return sums


@parallel_njit
def fill_checksums(words, run, sums):  # type: ignore[no-untyped-def]
    for i in prange(sums.size):
        part = words[i * run : min((i + 1) * run, words.size)]
        lanes = np.empty(LANES, dtype=np.uint64)
        for lane in range(LANES):
            lanes[lane] = _SEED + np.uint64(lane)
        n_whole = part.size // LANES * LANES
        for start in range(0, n_whole, LANES):
            for lane in range(LANES):
                mixed = (lanes[lane] ^ part[start + lane]) * _PRIME
                lanes[lane] = mixed ^ (mixed >> _SHIFT)
        for start in range(n_whole, run, LANES):  # padded with 0
            for lane in range(LANES):
                word = part[start + lane] if start + lane < part.size else np.uint64(0)
                mixed = (lanes[lane] ^ word) * _PRIME
                lanes[lane] = mixed ^ (mixed >> _SHIFT)
        total = _SEED
        for lane in range(LANES):
            total = (total ^ lanes[lane]) * _PRIME
            total ^= total >> _SHIFT
        sums[i] = total
