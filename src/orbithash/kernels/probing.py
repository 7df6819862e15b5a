"""Multi-index hashing: exact neighbours without comparing with every code.

A code that differs from the query in few bits differs in very few of some substring. So the
tables of substrings are asked for the query's own values, then for those one bit away, and so on.
When all tables have been asked up to `flips` bits, whatever was not found differs in more than
that in every substring: everything nearer is known, and the search ends once that is enough.

The numbers of values to ask for explode with the distance. A query that would take longer than a
scan is left to the scan.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int32, Int64, UInt64
from numba import get_num_threads, njit, prange

from orbithash.kernels.lanes import lowest
from orbithash.kernels.nearest import nearest_words
from orbithash.kernels.popcount import popcount
from orbithash.kernels.substring_tables import MOST_BITS, SubstringTables, substring
from orbithash.kernels.within import within_words

# What takes as long as scanning so many words of codes, measured by benchmarks/search.py.
PROBE = 60  # asking a table for a value
CANDIDATE = 120  # looking at a code that a table has named
TOGETHER = 64  # queries that have room for their candidates at the same time


@dataclass(frozen=True, eq=False)
class HashedCodes:
    """Codes as `as_words` lays them out, and their tables."""

    words: UInt64[np.ndarray, "words n"]
    tables: SubstringTables


def nearest_hashed(
    queries: UInt64[np.ndarray, "words queries"], database: HashedCodes, k: int
) -> tuple[Int32[np.ndarray, "queries k"], Int64[np.ndarray, "queries k"]]:
    """What `nearest_words` finds."""
    n_words, n = database.words.shape
    k = min(k, n)
    distances = np.empty((queries.shape[1], k), dtype=np.int32)
    positions = np.empty((queries.shape[1], k), dtype=np.int64)
    rest = []
    for query, found in enumerate(probed(queries, database, k, 64 * n_words)):
        if found is None:
            rest.append(query)
        else:
            distances[query], positions[query] = np.divmod(found, n)
    distances[rest], positions[rest] = nearest_words(queries[:, rest], database.words, k)
    return distances, positions


def within_hashed(
    queries: UInt64[np.ndarray, "words queries"], database: HashedCodes, radius: int
) -> list[tuple[Int64[np.ndarray, " found"], Int64[np.ndarray, " found"]]]:
    """What `within_words` finds."""
    n_words, n = database.words.shape
    answers = list(probed(queries, database, n + 1, min(radius, 64 * n_words)))
    rest = [query for query, found in enumerate(answers) if found is None]
    scanned = iter(within_words(queries[:, rest], database.words, radius))
    return [next(scanned) if found is None else np.divmod(found, n) for found in answers]


def probed(
    queries: UInt64[np.ndarray, "words queries"], database: HashedCodes, k: int, radius: int
) -> Iterator[Int64[np.ndarray, " found"] | None]:
    """The k nearest within a radius of each query, or nothing where a scan is quicker.

    An item is its distance times the number of codes plus its position, so that they sort.
    """
    n_words, n = database.words.shape
    n_queries = queries.shape[1]
    # A scan has work for all threads even if there is one query; here each has its own.
    budget = n_words * n * min(n_queries, get_num_threads()) // get_num_threads()
    room = min(n, budget // max(1, CANDIDATE * n_words))
    for start in range(0, n_queries, TOGETHER):
        batch = np.ascontiguousarray(queries[:, start : start + TOGETHER].T)
        keys = np.empty((len(batch), room), dtype=np.int64)
        found = np.empty(len(batch), dtype=np.int64)
        costs = (PROBE, CANDIDATE * n_words, budget)
        probe_all(batch, database.words, database.tables.arrays, k, radius, costs, keys, found)
        for query, count in enumerate(found.tolist()):
            # Compiling a sort would take longer than everything else here.
            yield np.sort(keys[query, :count])[:k] if count >= 0 else None


@njit(cache=True, parallel=True, nogil=True)
def probe_all(queries, database, tables, k, radius, costs, keys, found):  # type: ignore[no-untyped-def]
    for query in prange(len(queries)):
        found[query] = probe(queries, query, database, tables, k, radius, costs, keys)


@njit(cache=True, nogil=True)
def probe(queries, query, database, tables, k, radius, costs, keys):  # type: ignore[no-untyped-def]
    """Write the k nearest within the radius, with ties, and return how many; -1 asks for a scan."""
    starts, widths, bases, offsets, rows = tables
    probe_cost, candidate_cost, left = costs
    n_words, n = database.shape
    ours = np.empty((n_words, 1), dtype=np.uint64)
    difference = np.empty((n_words, 1), dtype=np.uint64)
    for word in range(n_words):
        ours[word, 0] = queries[query, word]
    counts = np.zeros(64 * n_words + 1, dtype=np.int64)
    kept, proven, enough = 0, -1, 0
    for flips in range(MOST_BITS + 1):
        for table in range(starts.size):
            width, base = widths[table], bases[table]
            # Values that differ in `flips` bits, and the codes that they would have by chance.
            values = combinations(width, flips)
            if values * (probe_cost + candidate_cost * (n >> width)) > left:
                return -1
            value = substring(ours, 0, starts[table], width)
            flipped = (1 << flips) - 1
            while flipped < 1 << width:
                place = base + (value ^ flipped)
                first, last = np.int64(offsets[place]), np.int64(offsets[place + 1])
                left -= probe_cost + candidate_cost * (last - first)
                if left < 0:
                    return -1
                for i in range(first, last):
                    position = np.int64(rows[table, i])
                    for word in range(n_words):
                        difference[word, 0] = database[word, position] ^ ours[word, 0]
                    if named_before(difference, starts, widths, flips, table):
                        continue
                    distance = ones(difference)
                    if distance <= radius:
                        keys[query, kept] = distance * n + position
                        kept += 1
                        counts[distance] += 1
                flipped = next_flipped(flipped) if flips > 0 else 1 << width
            # Whatever is not found yet differs in more than `flips` bits of the substrings so far
            # and in at least `flips` of the others.
            proven += 1
            enough += counts[proven] if proven < counts.size else 0
            if proven >= radius or enough >= k:
                return select(keys, query, kept, counts, k, n)
    return select(keys, query, kept, counts, k, n)


@njit(cache=True, nogil=True)
def named_before(difference, starts, widths, flips, table):  # type: ignore[no-untyped-def]
    """Whether a code was found by fewer flips, or by as many in a table before this."""
    for other in range(starts.size):
        bits = substring(difference, 0, starts[other], widths[other])
        flipped = popcount(bits)
        if flipped < flips or (flipped == flips and other < table):
            return True
    return False


@njit(cache=True, nogil=True)
def ones(words):  # type: ignore[no-untyped-def]
    count = np.int64(0)
    for word in range(words.shape[0]):
        count += np.int64(popcount(words[word, 0]))
    return count


@njit(cache=True, nogil=True)
def combinations(n, chosen):  # type: ignore[no-untyped-def]
    ways = 1
    for i in range(chosen):
        ways = ways * (n - i) // (i + 1)
    return ways


@njit(cache=True, nogil=True)
def next_flipped(bits):  # type: ignore[no-untyped-def]
    """The next larger number with as many ones."""
    last = bits & -bits
    carried = bits + last
    return carried | ((carried ^ bits) >> (2 + lowest(np.uint64(last))))


@njit(cache=True, nogil=True)
def select(keys, query, kept, counts, k, n):  # type: ignore[no-untyped-def]
    """Move the k nearest and what ties with them to the front, and return how many they are."""
    farthest, nearer = 0, counts[0]
    while nearer < min(k, kept):
        farthest += 1
        nearer += counts[farthest]
    near = 0
    for i in range(kept):
        if keys[query, i] < (farthest + 1) * n:
            keys[query, near] = keys[query, i]
            near += 1
    return near
