"""Multi-index hashing: exact neighbours without comparing with every code.

A code is cut into substrings of about as many bits as the number of codes has, and every table
says which codes have a given value in one of them.

Norouzi, Punjani and Fleet, "Fast Exact Search in Hamming Space with Multi-Index Hashing", 2014.

A code that differs from the query in few bits differs in very few of some substring. So the
tables of substrings are asked for the query's own values, then for those one bit away, and so on.
When all tables have been asked up to `flips` bits, whatever was not found differs in more than
that in every substring: everything nearer is known, and the search ends once that is enough.

The numbers of values to ask for explode with the distance, and how far it must go is not known
before. A query that has not ended within a fraction of the time of a scan is left to the scan.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int32, Int64, UInt32, UInt64
from numba import get_num_threads, njit, prange

from orbithash.errors import InputError
from orbithash.kernels.nearest import nearest_words
from orbithash.kernels.popcount import popcount
from orbithash.kernels.threads import parallel
from orbithash.kernels.wide_compare import lowest
from orbithash.kernels.within import within_words

FEWEST_BITS, MOST_BITS = 8, 24  # of a substring: a table has a place for each of its values


@dataclass(frozen=True, eq=False)
class SubstringTables:
    """The codes with value v in substring t are `rows[t, a:b]`.

    a and b are at `offsets[bases[t] + v]` and one further.
    """

    starts: Int64[np.ndarray, " tables"]  # first bit of each substring
    widths: Int64[np.ndarray, " tables"]
    bases: Int64[np.ndarray, " tables"]
    offsets: UInt32[np.ndarray, " values"]
    rows: UInt32[np.ndarray, "tables n"]

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The same as compiled loops take them."""
        return self.starts, self.widths, self.bases, self.offsets, self.rows

    @property
    def nbytes(self) -> int:
        return self.offsets.nbytes + self.rows.nbytes


def substring_tables(words: UInt64[np.ndarray, "words n"], n_bits: int) -> SubstringTables:
    """The tables of codes that are laid out by `as_words`."""
    n, n_bits = words.shape[1], 8 * -(-n_bits // 8)  # what a last byte is padded with, too
    if n > np.iinfo(np.uint32).max:
        raise InputError(f"got {n} codes, and tables hold 4,294,967,295; use the engine exact")
    most = min(MOST_BITS, max(FEWEST_BITS, n.bit_length()))
    bounds = np.linspace(0, n_bits, -(-n_bits // most) + 1).astype(np.int64)
    starts, widths = bounds[:-1], np.diff(bounds)
    sizes = (1 << widths) + 1
    bases = np.cumsum(sizes) - sizes
    offsets = np.zeros(int(sizes.sum()), dtype=np.uint32)
    rows = np.empty((len(starts), n), dtype=np.uint32)
    fill_tables(words, starts, widths, bases, offsets, rows)
    return SubstringTables(starts, widths, bases, offsets, rows)


@njit(cache=True, nogil=True)
def cut(word, next_word, start, width):  # type: ignore[no-untyped-def]
    """Some bits from place `start % 64` on, which may reach into the next word."""
    # Numbers, no arrays: counting references to arrays would take longer than all of this.
    shift = np.uint64(start & 63)
    bits = word >> shift
    if shift > 0:
        bits |= next_word << (np.uint64(64) - shift)
    return np.int64(bits & np.uint64((1 << width) - 1))


@parallel
def fill_tables(words, starts, widths, bases, offsets, rows):  # type: ignore[no-untyped-def]
    """A counting sort by each substring; equal ones stay in database order."""
    n_words, n = words.shape
    for table in prange(starts.size):
        start, width, base = starts[table], widths[table], bases[table]
        word = start >> 6
        beyond = min(word + 1, n_words - 1)  # the last substring ends with the last word
        for i in range(n):
            value = cut(words[word, i], words[beyond, i], start, width)
            offsets[base + 1 + value] += np.uint32(1)
        for value in range(1 << width):
            offsets[base + 1 + value] += offsets[base + value]
        # Each beginning moves to its value's end as the codes come in, which is the next beginning.
        for i in range(n):
            place = base + cut(words[word, i], words[beyond, i], start, width)
            rows[table, offsets[place]] = i
            offsets[place] += np.uint32(1)
        for value in range(1 << width, 0, -1):
            offsets[base + value] = offsets[base + value - 1]
        offsets[base] = 0


# Measured: what takes as long as scanning so many words of codes, of which a core does eight in a
# nanosecond. Tables and codes are read here and there, a scan reads them in a row.
PROBE = 150  # asking a table for a value
CANDIDATE = 500  # looking at a code that a table has named
GIVE_UP = 4  # a query may take this part of the time of a scan: what is then lost is not more
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
    budget = worth_probing(n_words * n, n_queries)
    room = min(n, budget // (CANDIDATE * n_words))
    for start in range(0, n_queries, TOGETHER):
        batch = np.ascontiguousarray(queries[:, start : start + TOGETHER].T)
        keys = np.empty((len(batch), room), dtype=np.int64)
        found = np.empty(len(batch), dtype=np.int64)
        costs = (PROBE, CANDIDATE * n_words, budget)
        probe_all(batch, database.words, database.tables.arrays, k, radius, costs, keys, found)
        for query, count in enumerate(found.tolist()):
            # Compiling a sort would take longer than everything else here.
            yield np.sort(keys[query, :count])[:k] if count >= 0 else None


def worth_probing(words: int, n_queries: int) -> int:
    """What a query may take before it is left to the scan, in words that a scan would read."""
    # A scan has work for all threads even if there is one query; here each has its own.
    threads = get_num_threads()
    return words // GIVE_UP * max(1, min(n_queries, threads)) // threads


@parallel
def probe_all(queries, database, tables, k, radius, costs, keys, found):  # type: ignore[no-untyped-def]
    for query in prange(len(queries)):
        found[query] = probe(queries, query, database, tables, k, radius, costs, keys)


@njit(cache=True, nogil=True)
def probe(queries, query, database, tables, k, radius, costs, keys):  # type: ignore[no-untyped-def]
    """Write the k nearest within the radius, with ties, and return how many; -1 asks for a scan."""
    starts, widths, bases, offsets, rows = tables
    probe_cost, candidate_cost, left = costs
    n_words, n = database.shape
    ours = np.zeros(n_words + 1, dtype=np.uint64)  # a last word beyond all substrings
    for word in range(n_words):
        ours[word] = queries[query, word]
    named = np.empty(keys.shape[1], dtype=np.uint32)
    counts = np.zeros(64 * n_words + 1, dtype=np.int64)
    kept, proven, enough = 0, -1, 0
    for flips in range(MOST_BITS + 1):
        for table in range(starts.size):
            start, width, base = starts[table], widths[table], bases[table]
            # Values that differ in `flips` bits, and the codes that they would have by chance.
            values = combinations(width, flips)
            if values * (probe_cost + candidate_cost * (n >> width)) > left:
                return -1
            value = cut(ours[start >> 6], ours[(start >> 6) + 1], start, width)
            flipped, n_named = (1 << flips) - 1, 0
            for _ in range(values):
                place = base + (value ^ flipped)
                first, last = np.int64(offsets[place]), np.int64(offsets[place + 1])
                left -= probe_cost + candidate_cost * (last - first)
                if left < 0:
                    return -1
                for i in range(first, last):
                    named[n_named] = rows[table, i]
                    n_named += 1
                flipped = next_flipped(flipped)
            seen = (starts, widths, flips, table)
            kept = look_at(named[:n_named], ours, database, seen, radius, keys[query], kept, counts)
            # Whatever is not found yet differs in more than `flips` bits of the substrings so far
            # and in at least `flips` of the others.
            proven += 1
            enough += counts[proven] if proven < counts.size else 0
            if proven >= radius or enough >= k:
                return select(keys[query], kept, counts, k, n)
    return select(keys[query], kept, counts, k, n)


@njit(cache=True, nogil=True)
def look_at(named, ours, database, seen, radius, keys, kept, counts):  # type: ignore[no-untyped-def]
    """Add the named codes within the radius to those that are kept, and return how many these are.

    What fewer flips have found, or as many in a table before this, is there already.
    """
    starts, widths, flips, table = seen
    n_words, n = database.shape
    difference = np.zeros_like(ours)
    for position in named:
        distance = np.int64(0)
        for word in range(n_words):
            difference[word] = database[word, position] ^ ours[word]
            distance += np.int64(popcount(difference[word]))
        is_new = distance <= radius
        for other in range(starts.size):
            start = starts[other]
            word = start >> 6
            bits = cut(difference[word], difference[word + 1], start, widths[other])
            flipped = popcount(bits)
            if flipped < flips or (flipped == flips and other < table):
                is_new = False
                break
        if is_new:
            keys[kept] = distance * n + position
            kept += 1
            counts[distance] += 1
    return kept


@njit(cache=True, nogil=True)
def combinations(n, chosen):  # type: ignore[no-untyped-def]
    ways = 1
    for i in range(chosen):
        ways = ways * (n - i) // (i + 1)
    return ways


@njit(cache=True, nogil=True)
def next_flipped(bits):  # type: ignore[no-untyped-def]
    """The next larger number with as many ones."""
    if bits == 0:
        return bits
    last = bits & -bits
    carried = bits + last
    return carried | ((carried ^ bits) >> (2 + lowest(np.uint64(last))))


@njit(cache=True, nogil=True)
def select(keys, kept, counts, k, n):  # type: ignore[no-untyped-def]
    """Move the k nearest and what ties with them to the front, and return how many they are."""
    farthest, nearer = 0, counts[0]
    while nearer < min(k, kept):
        farthest += 1
        nearer += counts[farthest]
    near = 0
    for i in range(kept):
        if keys[i] < (farthest + 1) * n:
            keys[near] = keys[i]
            near += 1
    return near
