"""Connected groups of codes: near-duplicates, joined by steps of at most `radius` bits.

Equal codes are collapsed first. The others are joined by a union-find that all threads share.

Codes that differ in at most `radius` bits are equal in at least one of `radius + 1` disjoint sets
of bits. So the codes are sorted by each set in turn, and only codes that are equal there are
compared. Where the sets would be too small to tell codes apart, all pairs are compared.

Memory does not depend on the number of pairs: a pair is joined as soon as it is found. Time hardly
does: a first pass compares each code with a few others, which joins most of what is dense; after
it, a run of codes that belong to one group is skipped by every code of the same group.
"""

import math
from typing import Any

import numpy as np
from jaxtyping import Int32, Int64, UInt64
from numba import njit, prange, types
from numba.extending import intrinsic

from orbithash.errors import InputError
from orbithash.kernels.search.wide_compare import LANES, clear_lowest_bit, lowest_bit, next_nearer
from orbithash.kernels.threads import parallel_njit

WINDOW = 1024  # codes that the first pass compares each code with
KEY_BITS = 31  # of a set at most; a key and the number of a code share one int64
SAMPLE = 2048  # codes from which the sets of bits are chosen and their cost is estimated
TASK_ROWS = 32  # codes that share a pass over the codes after them
BLOCK_WORDS = 1024  # that stay in the cache of a core meanwhile, and are skipped together
CALL_WORDS = 1 << 33  # compared by one compiled call, about a second: between calls, Ctrl-C works
SORT_WORDS = 2000  # that are compared in the time of sorting one code by one set, as measured


def connected_words(
    words: UInt64[np.ndarray, "words n"], n_bits: int, radius: int
) -> Int64[np.ndarray, " n"]:
    """Return the group of each code, as the position of the group's first code.

    Two codes are in one group if they differ in at most `radius` bits, or if other codes connect
    them by such steps. Codes have the layout of `as_words`.

    >>> connected_words(np.array([[0b0000, 0b1111, 0b0001, 0b0011]], np.uint64), 4, radius=1)
    array([0, 1, 0, 0])
    """
    n = words.shape[1]
    if n > np.iinfo(np.int32).max:
        raise InputError(f"got {n} codes; groups are found among 2,147,483,647 at most")
    numbers = np.empty(n, dtype=np.int32)  # of each code's distinct code
    distinct = distinct_words(words, numbers)
    parents = np.arange(distinct.shape[1], dtype=np.int32)
    join_within(distinct, n_bits, radius, parents)
    groups = np.empty(n, dtype=np.int64)
    name_groups(numbers, parents, np.full(len(parents), -1, dtype=np.int32), groups)
    return groups


def distinct_words(
    words: UInt64[np.ndarray, "words n"], numbers: Int32[np.ndarray, " n"]
) -> UInt64[np.ndarray, "words distinct"]:
    """Return the different codes in the order of their hashes, and number them in `numbers`.

    Two codes with the same hash may separate equal ones, which are then joined as any others are.
    """
    hashes = words[0]
    for row in words[1:]:
        hashes = (hashes ^ (hashes >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15) ^ row
    order = np.argsort(hashes)
    n_distinct = number_distinct(words, order, numbers)
    return np.ascontiguousarray(words[:, order[:n_distinct]])


def join_within(
    words: UInt64[np.ndarray, "words n"], n_bits: int, radius: int, parents: Int32[np.ndarray, " n"]
) -> None:
    """Join all codes at most `radius` bits apart."""
    n = words.shape[1]
    ends = np.full(n, n, dtype=np.int32)
    ends[: max(0, n - WINDOW - 1)] = np.arange(WINDOW + 1, n)
    rows, runs = np.arange(n, dtype=np.int32), np.arange(n)  # each code is a run of its own
    n_groups = n - join_rows(words, rows, runs, ends, radius, parents)
    del rows, runs
    for bits in bit_sets(words, n_bits, radius) if n_groups > 1 else ():
        # Sorted by key, and by group where keys are equal.
        keys = np.empty(n, dtype=np.int64)
        fill_keys(words, bits, parents, keys)
        rows = np.argsort(keys).astype(np.int32)
        keys = keys[rows]
        fill_ends(keys, ends)
        ordered = np.ascontiguousarray(words[:, rows])
        n_groups -= join_rows(ordered, rows, keys, ends, radius, parents)
        if n_groups == 1:
            return
        del ordered, keys, rows  # before the next are made


def bit_sets(
    words: UInt64[np.ndarray, "words n"], n_bits: int, radius: int
) -> list[Int64[np.ndarray, " bits"]]:
    """Return disjoint sets of bits; codes within the radius are equal in at least one of them.

    One empty set, in which all codes are equal, if comparing all pairs takes less time.
    """
    n_words, n = words.shape
    everything = [np.empty(0, dtype=np.int64)]
    width = min(KEY_BITS, n_bits // (radius + 1))
    if width == 0:
        return everything
    sample = np.ascontiguousarray(words[:, :: max(1, n // SAMPLE)].T, dtype="<u8")
    bits = np.unpackbits(sample.view(np.uint8), axis=1, bitorder="little")
    # The most balanced bits tell most codes apart. They are dealt out in turn, so that no set is
    # left with bits that are all the same, and copies of a bit are in different sets.
    imbalance = np.abs(bits.mean(axis=0) - 0.5)
    chosen = np.argsort(imbalance, kind="stable")[: width * (radius + 1)]
    sets = [chosen[start :: radius + 1] for start in range(radius + 1)]
    share = sum(equal_share(bits[:, each]) for each in sets)  # of all pairs that are compared
    pairs = n * (n - 1) / 2 * n_words
    return sets if share * pairs + len(sets) * n * SORT_WORDS < pairs else everything


def equal_share(bits: Any) -> float:
    """Return the share of pairs of rows that are equal."""
    n = len(bits)
    counts = np.unique(np.packbits(bits, axis=1), axis=0, return_counts=True)[1]
    return float((counts * (counts - 1)).sum() / max(1, n * (n - 1)))


def join_rows(
    words: UInt64[np.ndarray, "words n"],
    rows: Int32[np.ndarray, " n"],
    runs: Int64[np.ndarray, " n"],
    ends: Int32[np.ndarray, " n"],
    radius: int,
    parents: Int32[np.ndarray, " n"],
) -> int:
    """Join each code with those after it, up to its end; return by how many groups are fewer.

    `words` are sorted, `rows` are their numbers in `parents`. Codes from one place to another with
    equal `runs` are in one group.
    """
    n_words, n = words.shape
    n_tasks = -(-n // TASK_ROWS)
    # Neighbouring tasks take equally long, so that each thread gets tasks from everywhere.
    stride = max(1, int(0.618 * n_tasks))
    while math.gcd(stride, n_tasks) > 1:
        stride += 1
    compared = float(ends.sum(dtype=np.int64) - n * (n + 1) / 2) * n_words
    step = max(1, int(n_tasks / max(1.0, compared / CALL_WORDS)))
    n_joined = 0
    for first in range(0, n_tasks, step):
        tasks = (first, min(first + step, n_tasks), stride, n_tasks)
        n_joined += join_tasks(words, rows, runs, ends, radius + 1, tasks, parents)
        if n_joined == n - 1:
            break
    return n_joined


@parallel_njit
def join_tasks(words, rows, runs, ends, limit, tasks, parents):  # type: ignore[no-untyped-def]
    first, last, stride, n_tasks = tasks
    n_joined = 0
    for task in prange(first, last):
        start = task * stride % n_tasks * TASK_ROWS
        n_joined += join_task(words, rows, runs, ends, limit, start, parents)
    return n_joined


@njit(cache=True, nogil=True)
def join_task(words, rows, runs, ends, limit, start, parents):  # type: ignore[no-untyped-def]
    n_words, n = words.shape
    stop = min(start + TASK_ROWS, n)
    queries = np.empty((stop - start, n_words), dtype=np.uint64)
    for query in range(stop - start):
        for word in range(n_words):
            queries[query, word] = words[word, start + query]
    block, last, n_joined = max(LANES, BLOCK_WORDS // n_words), np.int64(ends[stop - 1]), 0
    for block_start in range(start + 1, last, block):
        block_stop = min(block_start + block, last)
        for query in range(stop - start):
            i = max(block_start, start + query + 1)
            end = min(block_stop, np.int64(ends[start + query]))
            if i >= end:
                continue
            row = rows[start + query]
            if runs[i] == runs[end - 1] and root(parents, rows[i]) == root(parents, row):
                continue
            while i < end:
                i, mask = next_nearer(queries, query, words, i, end, limit)
                while mask != 0:
                    n_joined += join(parents, row, rows[i + lowest_bit(mask)])
                    mask = clear_lowest_bit(mask)
                i += LANES
    return n_joined


@njit(cache=True, nogil=True)
def root(parents, item):  # type: ignore[no-untyped-def]
    """Return the root of an item, and halve the way there.

    Other threads may do so at the same time: whatever they write is further up the same way.
    """
    item = np.int64(item)
    while True:
        above = np.int64(parents[item])
        if above == item:
            return item
        parents[item] = parents[above]
        item = above


@njit(cache=True, nogil=True)
def join(parents, left, right):  # type: ignore[no-untyped-def]
    """Join two groups; return 1, or 0 if they are one already."""
    while True:
        left, right = root(parents, left), root(parents, right)
        if left == right:
            return 0
        # The larger root goes below the smaller, unless another thread has moved it meanwhile.
        low, high = min(left, right), max(left, right)
        if replace_if(parents, high, np.int32(high), np.int32(low)):
            return 1


def emit_replace_if(
    typing_context: Any, array: Any, position: Any, expected: Any, value: Any
) -> Any:
    """Emit the code of `replace_if`: write a value in place of the expected one, in one step."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target = context.make_array(array)(context, builder, arguments[0])
        address = builder.gep(target.data, [arguments[1]])
        _, _, old, new = arguments
        swapped = builder.cmpxchg(address, old, new, "seq_cst", "seq_cst")
        return builder.extract_value(swapped, 1)

    return types.boolean(array, types.intp, array.dtype, array.dtype), generate


replace_if: Any = intrinsic(emit_replace_if)


@njit(cache=True, nogil=True)
def number_distinct(words, order, numbers):  # type: ignore[no-untyped-def]
    """Number equal neighbours of the order alike; move one of each to its front."""
    n_words, n = words.shape
    n_distinct = 0
    for i in range(n):
        position = order[i]
        is_new = n_distinct == 0
        for word in range(n_words):
            if n_distinct > 0 and words[word, position] != words[word, order[n_distinct - 1]]:
                is_new = True
        if is_new:
            order[n_distinct] = position
            n_distinct += 1
        numbers[position] = n_distinct - 1
    return n_distinct


@parallel_njit
def fill_keys(words, bits, parents, keys):  # type: ignore[no-untyped-def]
    """Write the chosen bits of each code, and below them its group."""
    for i in prange(keys.size):
        key = np.uint64(0)
        for bit in bits:
            value = words[bit >> 6, i] >> np.uint64(bit & 63)
            key = (key << np.uint64(1)) | (value & np.uint64(1))
        keys[i] = (np.int64(key) << 32) | root(parents, i)


@njit(cache=True, nogil=True)
def fill_ends(keys, ends):  # type: ignore[no-untyped-def]
    """Write the position after the last code with the same chosen bits."""
    end = keys.size
    for i in range(keys.size - 1, -1, -1):
        if i + 1 < keys.size and keys[i] >> 32 != keys[i + 1] >> 32:
            end = i + 1
        ends[i] = end


@njit(cache=True, nogil=True)
def name_groups(numbers, parents, firsts, groups):  # type: ignore[no-untyped-def]
    """Write the first position of each code's group; `firsts` starts as -1."""
    for i in range(numbers.size):
        group = root(parents, numbers[i])
        if firsts[group] < 0:
            firsts[group] = i
        groups[i] = firsts[group]
