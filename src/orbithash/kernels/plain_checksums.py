"""Checksums of words, in plain numpy: of few words, and the reference of the compiled loop.

Every word of a run goes through one of 64 lanes: `lane = (lane ^ word) * PRIME`, modulo 2^64, whose
high bits are then added to its low ones, because products carry only upwards. Each step is a
bijection of the lane and of the word, so a single changed word always changes the result. Lanes are
independent of each other, which makes this several times as fast as a CRC: as fast as memory is
read.
"""

import numpy as np
from jaxtyping import UInt64

LANES, SHIFT = 64, 29
PRIME = 0x9FB21C651E98DF25
SEED = 0xC2B2AE3D27D4EB4F


def run_checksums_reference(
    words: UInt64[np.ndarray, " n"], run: int
) -> UInt64[np.ndarray, " runs"]:
    """Return a checksum of each run of words; the last run may be shorter. `run` is in whole lanes.

    >>> words = np.arange(130, dtype=np.uint64)
    >>> len(run_checksums_reference(words, 128))
    2
    """
    n_runs = -(-len(words) // run)
    padded = np.zeros(n_runs * run, dtype=np.uint64)
    padded[: len(words)] = words
    steps = padded.reshape(n_runs, run // LANES, LANES)
    prime = np.uint64(PRIME)
    lanes = np.tile(np.uint64(SEED) + np.arange(LANES, dtype=np.uint64), (n_runs, 1))
    for step in range(run // LANES):
        lanes = (lanes ^ steps[:, step]) * prime
        lanes ^= lanes >> np.uint64(SHIFT)
    sums = np.tile(np.uint64(SEED), n_runs)
    for lane in range(LANES):
        sums = (sums ^ lanes[:, lane]) * prime
        sums ^= sums >> np.uint64(SHIFT)
    return sums
