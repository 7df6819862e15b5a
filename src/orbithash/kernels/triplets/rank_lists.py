"""Rank lists, compiled: the items of a batch in the order of their distance to an anchor.

A stable radix sort, least significant digit first: by Hamming distance, then by a tie key (the
embedding distance, a random number, or none), then by position. It is linear in the length of the
list.
"""

import numpy as np
from numba import njit

DIGIT_BITS = 11  # per pass: three passes for a float32, and 2,048 counters fit the L1 cache
DIGIT_MASK = (1 << DIGIT_BITS) - 1


@njit(cache=True, nogil=True)
def rank_list(
    items: np.ndarray, hamming: np.ndarray, keys: np.ndarray, key_bits: int
) -> np.ndarray:
    """Return `items`, which are positions in `hamming` and `keys`, sorted by distance.

    `keys` is unsigned; only its lowest `key_bits` bits count.
    """
    order = items.copy()
    buffer = np.empty_like(order)
    counts = np.empty(DIGIT_MASK + 1, np.int64)
    for shift in range(0, key_bits, DIGIT_BITS):
        if _sort_by_digit(order, buffer, keys, shift, counts):
            order, buffer = buffer, order
    # One pass is enough: distances are at most codes.MAX_BITS = 1024.
    if _sort_by_digit(order, buffer, hamming, 0, counts):
        order, buffer = buffer, order
    return order


@njit(cache=True, nogil=True)
def positions_by_key(keys: np.ndarray) -> np.ndarray:
    """Return the positions of unsigned keys in ascending order; equal keys keep theirs."""
    order = np.arange(len(keys))
    buffer = np.empty_like(order)
    counts = np.empty(DIGIT_MASK + 1, np.int64)
    for shift in range(0, 8 * keys.itemsize, DIGIT_BITS):
        if _sort_by_digit(order, buffer, keys, shift, counts):
            order, buffer = buffer, order
    return order


@njit(cache=True, nogil=True)
def _sort_by_digit(
    order: np.ndarray, sorted_order: np.ndarray, keys: np.ndarray, shift: int, counts: np.ndarray
) -> bool:
    """Write one stable counting sort into `sorted_order`.

    Return False, without writing, where all digits are equal: `order` is sorted already.
    """
    counts[:] = 0
    for item in order:
        counts[(keys[item] >> shift) & DIGIT_MASK] += 1
    if counts[(keys[order[0]] >> shift) & DIGIT_MASK] == len(order):
        return False
    start = 0
    for digit in range(len(counts)):
        count = counts[digit]
        counts[digit] = start
        start += count
    for item in order:
        digit = (keys[item] >> shift) & DIGIT_MASK
        sorted_order[counts[digit]] = item
        counts[digit] += 1
    return True
