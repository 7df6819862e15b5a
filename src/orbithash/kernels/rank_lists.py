"""Rank lists, compiled: in which order an anchor sees the others.

By Hamming distance, and where that is equal by a second key: the embedding distance, a random
number or nothing, and at last by position. A radix sort fits all of it: it is stable, linear in the
length of the list, and a non-negative float sorts like the integer with the same bits.
"""

import numpy as np
from numba import njit

DIGIT = 11  # bits per pass: three passes for a float32, and its 2,048 counters stay in cache
MASK = (1 << DIGIT) - 1


@njit(cache=True, nogil=True)
def rank_list(
    members: np.ndarray, hamming: np.ndarray, keys: np.ndarray, key_bits: int
) -> np.ndarray:
    """The members (positions in the rows `hamming` and `keys`) from the nearest on.

    `keys` is unsigned; only its lowest `key_bits` count, none of them if that is 0.
    """
    order = members.copy()
    spare = np.empty_like(order)
    counts = np.empty(MASK + 1, np.int64)
    for shift in range(0, key_bits, DIGIT):
        if _sort_by_digit(order, spare, keys, shift, counts):
            order, spare = spare, order
    if _sort_by_digit(order, spare, hamming, 0, counts):
        order, spare = spare, order
    return order


@njit(cache=True, nogil=True)
def _sort_by_digit(
    order: np.ndarray, sorted_order: np.ndarray, keys: np.ndarray, shift: int, counts: np.ndarray
) -> bool:
    """One stable counting sort; False, and nothing written, where all digits are the same."""
    counts[:] = 0
    for member in order:
        counts[(keys[member] >> shift) & MASK] += 1
    if counts[(keys[order[0]] >> shift) & MASK] == len(order):
        return False
    start = 0
    for digit in range(len(counts)):
        count = counts[digit]
        counts[digit] = start
        start += count
    for member in order:
        digit = (keys[member] >> shift) & MASK
        sorted_order[counts[digit]] = member
        counts[digit] += 1
    return True
