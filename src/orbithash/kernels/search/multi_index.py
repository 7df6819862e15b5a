"""Multi-index hashing: exact neighbours without comparing the query with every code.

Codes are cut into substrings of about log2(number of codes) bits, with a hash table for each
substring. A code that differs from the query in few bits differs in very few bits of at least one
substring. So the tables are probed with the query's own substrings, then with all values one bit
away, and so on. Once all tables have been probed up to `flips` bits, every code that was not found
differs in more than `flips` bits in every substring; the search stops as soon as that proves the
result complete.

Norouzi, Punjani and Fleet, "Fast Exact Search in Hamming Space with Multi-Index Hashing", 2014.

The number of values to probe explodes with the distance, and the necessary distance is not known in
advance. A query that has not finished within a fraction of the time of a scan is scanned instead.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int32, Int64, UInt32, UInt64
from numba import get_num_threads, njit, prange

from orbithash.errors import InputError
from orbithash.kernels.hamming import popcount
from orbithash.kernels.search.nearest import nearest_words, within_words
from orbithash.kernels.search.wide_compare import lowest_bit
from orbithash.kernels.threads import parallel_njit

MIN_SUBSTRING_BITS, MAX_SUBSTRING_BITS = 8, 24  # a table has an entry for each value
# Costs in words that a scan reads in the same time, as measured; a core scans eight words in a
# nanosecond. Tables and their candidates are read at random, a scan reads sequentially.
PROBE_COST = 150  # of looking up one value in a table
CANDIDATE_COST = 500  # of comparing one candidate, per word
BUDGET_DIVISOR = 4  # a query may take this fraction of a scan, the most that is lost by trying
BATCH_QUERIES = 64  # queries whose candidates are in memory at the same time


@dataclass(frozen=True, eq=False)
class SubstringTables:
    """Codes in the layout of `as_words`, and a hash table of each of their substrings.

    The positions of the codes with value v in substring t are `positions[t, a:b]`, where a and b
    are `offsets[bases[t] + v]` and the entry after it.
    """

    words: UInt64[np.ndarray, "words n"]
    starts: Int64[np.ndarray, " tables"]  # first bit of each substring
    widths: Int64[np.ndarray, " tables"]  # bits of each substring
    bases: Int64[np.ndarray, " tables"]
    offsets: UInt32[np.ndarray, " values"]
    positions: UInt32[np.ndarray, "tables n"]

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The tables as the compiled loops take them."""
        return self.starts, self.widths, self.bases, self.offsets, self.positions

    @property
    def nbytes(self) -> int:
        """Memory of the tables, without the codes."""
        return self.offsets.nbytes + self.positions.nbytes


def substring_tables(words: UInt64[np.ndarray, "words n"], n_bits: int) -> SubstringTables:
    """Build the tables of codes in the layout of `as_words`."""
    n, n_bits = words.shape[1], 8 * -(-n_bits // 8)  # including the padding of the last byte
    if n > np.iinfo(np.uint32).max:
        raise InputError(f"got {n} codes, and tables hold 4,294,967,295; use the engine exact")
    max_width = min(MAX_SUBSTRING_BITS, max(MIN_SUBSTRING_BITS, n.bit_length()))
    bounds = np.linspace(0, n_bits, -(-n_bits // max_width) + 1).astype(np.int64)
    starts, widths = bounds[:-1], np.diff(bounds)
    sizes = (1 << widths) + 1
    bases = np.cumsum(sizes) - sizes
    offsets = np.zeros(int(sizes.sum()), dtype=np.uint32)
    positions = np.empty((len(starts), n), dtype=np.uint32)
    fill_tables(words, starts, widths, bases, offsets, positions)
    return SubstringTables(words, starts, widths, bases, offsets, positions)


def nearest_by_tables(
    queries: UInt64[np.ndarray, "words queries"], tables: SubstringTables, k: int
) -> tuple[Int32[np.ndarray, "queries k"], Int64[np.ndarray, "queries k"]]:
    """Return the result of `nearest_words`."""
    n_words, n = tables.words.shape
    k = min(k, n)
    distances = np.empty((queries.shape[1], k), dtype=np.int32)
    positions = np.empty((queries.shape[1], k), dtype=np.int64)
    unfinished = []
    for query, keys in enumerate(probe_queries(queries, tables, k, 64 * n_words)):
        if keys is None:
            unfinished.append(query)
        else:
            distances[query], positions[query] = np.divmod(keys, n)
    distances[unfinished], positions[unfinished] = nearest_words(
        queries[:, unfinished], tables.words, k
    )
    return distances, positions


def within_by_tables(
    queries: UInt64[np.ndarray, "words queries"], tables: SubstringTables, radius: int
) -> list[tuple[Int64[np.ndarray, " found"], Int64[np.ndarray, " found"]]]:
    """Return the result of `within_words`."""
    n_words, n = tables.words.shape
    results = list(probe_queries(queries, tables, n + 1, min(radius, 64 * n_words)))
    unfinished = [query for query, keys in enumerate(results) if keys is None]
    scanned = iter(within_words(queries[:, unfinished], tables.words, radius))
    return [next(scanned) if keys is None else np.divmod(keys, n) for keys in results]


def probe_queries(
    queries: UInt64[np.ndarray, "words queries"], tables: SubstringTables, k: int, radius: int
) -> Iterator[Int64[np.ndarray, " found"] | None]:
    """Yield the keys of each query's k nearest within a radius, or None where a scan is faster.

    The key of a code is its distance times the number of codes plus its position: sorting the keys
    sorts by distance, then by position.
    """
    n_words, n = tables.words.shape
    n_queries = queries.shape[1]
    budget = probe_budget(n_words * n, n_queries)
    capacity = min(n, budget // (CANDIDATE_COST * n_words))
    costs = (PROBE_COST, CANDIDATE_COST * n_words, budget)
    for start in range(0, n_queries, BATCH_QUERIES):
        batch = np.ascontiguousarray(queries[:, start : start + BATCH_QUERIES].T)
        keys = np.empty((len(batch), capacity), dtype=np.int64)
        counts = np.empty(len(batch), dtype=np.int64)
        probe_batch(batch, tables.words, tables.arrays, k, radius, costs, keys, counts)
        for query, count in enumerate(counts.tolist()):
            # In numpy: compiling a sort would take longer than everything else here.
            yield np.sort(keys[query, :count])[:k] if count >= 0 else None


def probe_budget(words: int, n_queries: int) -> int:
    """Return the cost at which a query is left to the scan, in words that a scan would read."""
    # A scan of one query uses all threads; probing uses one thread per query.
    threads = get_num_threads()
    return words // BUDGET_DIVISOR * max(1, min(n_queries, threads)) // threads


@parallel_njit
def fill_tables(words, starts, widths, bases, offsets, positions):  # type: ignore[no-untyped-def]
    """Sort the codes by each substring with a counting sort; ties stay in database order."""
    n_words, n = words.shape
    for table in prange(starts.size):
        start, width, base = starts[table], widths[table], bases[table]
        word = start >> 6
        next_word = min(word + 1, n_words - 1)  # the last substring ends in the last word
        for i in range(n):
            value = substring(words[word, i], words[next_word, i], start, width)
            offsets[base + 1 + value] += np.uint32(1)
        for value in range(1 << width):
            offsets[base + 1 + value] += offsets[base + value]
        # Filling a bucket moves its offset to the start of the next bucket; shifted back below.
        for i in range(n):
            bucket = base + substring(words[word, i], words[next_word, i], start, width)
            positions[table, offsets[bucket]] = i
            offsets[bucket] += np.uint32(1)
        for value in range(1 << width, 0, -1):
            offsets[base + value] = offsets[base + value - 1]
        offsets[base] = 0


@parallel_njit
def probe_batch(queries, database, tables, k, radius, costs, keys, counts):  # type: ignore[no-untyped-def]
    for query in prange(len(queries)):
        counts[query] = probe(queries[query], database, tables, k, radius, costs, keys[query])


@njit(cache=True, nogil=True)
def probe(query, database, tables, k, radius, costs, keys):  # type: ignore[no-untyped-def]
    """Write the keys of the k nearest within the radius and their ties; return their number.

    Return -1 when the budget does not suffice.
    """
    starts, widths, bases, offsets, positions = tables
    probe_cost, candidate_cost, budget = costs
    n_words, n = database.shape
    query_words = np.zeros(n_words + 1, dtype=np.uint64)  # one more, for the last substring
    for word in range(n_words):
        query_words[word] = query[word]
    candidates = np.empty(keys.size, dtype=np.uint32)
    counts = np.zeros(64 * n_words + 1, dtype=np.int64)  # found codes by distance
    n_found, proven, n_proven = 0, -1, 0
    for flips in range(MAX_SUBSTRING_BITS + 1):
        for table in range(starts.size):
            start, width, base = starts[table], widths[table], bases[table]
            # Expected cost: the values that differ in `flips` bits, with n / 2^width codes each.
            n_values = combinations(width, flips)
            if n_values * (probe_cost + candidate_cost * (n >> width)) > budget:
                return -1
            value = substring(query_words[start >> 6], query_words[(start >> 6) + 1], start, width)
            flipped, n_candidates = (1 << flips) - 1, 0
            for _ in range(n_values):
                bucket = base + (value ^ flipped)
                first, last = np.int64(offsets[bucket]), np.int64(offsets[bucket + 1])
                budget -= probe_cost + candidate_cost * (last - first)
                if budget < 0:
                    return -1
                for i in range(first, last):
                    candidates[n_candidates] = positions[table, i]
                    n_candidates += 1
                flipped = next_with_same_ones(flipped)
            probed = (starts, widths, flips, table)
            n_found = add_candidates(
                candidates[:n_candidates],
                query_words,
                database,
                probed,
                radius,
                keys,
                n_found,
                counts,
            )
            # Any code not found yet differs in more than `flips` bits of the substrings probed so
            # far and in at least `flips` of the others: all codes up to `proven` bits are found.
            proven += 1
            n_proven += counts[proven] if proven < counts.size else 0
            if proven >= radius or n_proven >= k:
                return keep_nearest(keys, n_found, counts, k, n)
    return keep_nearest(keys, n_found, counts, k, n)


@njit(cache=True, nogil=True)
def add_candidates(  # type: ignore[no-untyped-def]
    candidates, query_words, database, probed, radius, keys, n_found, counts
):
    """Append the keys of new candidates within the radius; return the number of keys.

    A candidate is not new if fewer flips, or as many in an earlier table, have found it.
    """
    starts, widths, flips, table = probed
    n_words, n = database.shape
    difference = np.zeros_like(query_words)
    for position in candidates:
        distance = np.int64(0)
        for word in range(n_words):
            difference[word] = database[word, position] ^ query_words[word]
            distance += np.int64(popcount(difference[word]))
        is_new = distance <= radius
        for other in range(starts.size):
            start = starts[other]
            word = start >> 6
            bits = substring(difference[word], difference[word + 1], start, widths[other])
            flipped = popcount(bits)
            if flipped < flips or (flipped == flips and other < table):
                is_new = False
                break
        if is_new:
            keys[n_found] = distance * n + position
            n_found += 1
            counts[distance] += 1
    return n_found


@njit(cache=True, nogil=True)
def keep_nearest(keys, n_found, counts, k, n):  # type: ignore[no-untyped-def]
    """Move the k nearest and their ties to the front of the keys, and return their number."""
    farthest, n_within = 0, counts[0]
    while n_within < min(k, n_found):
        farthest += 1
        n_within += counts[farthest]
    n_kept = 0
    for i in range(n_found):
        if keys[i] < (farthest + 1) * n:
            keys[n_kept] = keys[i]
            n_kept += 1
    return n_kept


@njit(cache=True, nogil=True)
def substring(word, next_word, start, width):  # type: ignore[no-untyped-def]
    """Return `width` bits from bit `start % 64` of a word; they may extend into the next word."""
    # Scalars instead of arrays: counting array references would take longer than all of this.
    shift = np.uint64(start & 63)
    bits = word >> shift
    if shift > 0:
        bits |= next_word << (np.uint64(64) - shift)
    return np.int64(bits & np.uint64((1 << width) - 1))


@njit(cache=True, nogil=True)
def combinations(n, k):  # type: ignore[no-untyped-def]
    result = 1
    for i in range(k):
        result = result * (n - i) // (i + 1)
    return result


@njit(cache=True, nogil=True)
def next_with_same_ones(bits):  # type: ignore[no-untyped-def]
    """Return the next larger number with as many ones."""
    if bits == 0:
        return bits
    last = bits & -bits
    carried = bits + last
    return carried | ((carried ^ bits) >> (2 + lowest_bit(np.uint64(last))))
