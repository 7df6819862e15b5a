"""Time and memory of finding groups of near-duplicates, and faiss's time for the same groups.

    python benchmarks/duplicates.py [CODES]     default: 1000000

Codes of 64 bits, radius 3: random, in 1,000 clusters (three bits flipped), with twenty
near-duplicates of each code (two bits flipped), and with a tenth of all codes equal. A million must
take at most a minute, and at most 64 bytes a code at the peak, with the codes and ids themselves.

faiss finds all pairs within the radius (`IndexBinaryFlat.range_search`), and scipy joins them. As
that compares every pair, both run on 50,000 codes there; a figure is faiss's time divided by ours.
The groups must be the same.
"""

import os

# Waiting threads must sleep: numba and faiss alternate on the same cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import sys
import time
import tracemalloc

import faiss
import numba
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from measure import at_least, at_most, best
from orbithash.index import ExactIndex
from orbithash.kernels.search.duplicates import connected_words

RADIUS, N_BITS, N_CLUSTERS, COPIES = 3, 64, 1_000, 20
N_PEER, REPEATS = 50_000, 3
MAX_SECONDS, MAX_BYTES, MIN_RATIO = 60, 64, 5  # of a million codes; and of the peer


def main() -> int:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    faiss.omp_set_num_threads(numba.get_num_threads())
    print(f"near-duplicates, {N_BITS} bits, radius {RADIUS}, {numba.get_num_threads()} threads\n")
    passed = []
    for kind in (random_codes, clustered_codes, copied_codes, equal_codes):
        name = kind.__name__.partition("_")[0]
        ratio = against_faiss(kind(N_PEER))  # compiles, too
        seconds, peak, n_groups = measured(kind(n))
        print(f"{n:,} {name} codes: {n_groups:,} groups", flush=True)
        passed += [
            at_most("seconds", seconds, MAX_SECONDS),
            at_most("bytes a code", peak / n, MAX_BYTES),
            at_least(f"times faster than faiss, {N_PEER:,} codes", ratio, MIN_RATIO),
        ]
    return 0 if all(passed) else 1


def measured(words: np.ndarray) -> tuple[float, int, int]:
    """Return seconds, bytes at the peak, and the number of groups."""
    index = ExactIndex(N_BITS)
    index.add(codes=words.view(np.uint8).reshape(-1, N_BITS // 8))
    tracemalloc.start()
    start = time.perf_counter()
    groups = index.duplicates(RADIUS)
    seconds = time.perf_counter() - start
    peak = tracemalloc.get_traced_memory()[1] + index.stats().memory_bytes
    tracemalloc.stop()
    return seconds, peak, len(groups)


def against_faiss(words: np.ndarray) -> float:
    """Return faiss's time divided by ours; exit if the groups differ."""
    flat = faiss.IndexBinaryFlat(N_BITS)
    codes = words.view(np.uint8).reshape(-1, N_BITS // 8)
    flat.add(codes)

    def joined_pairs() -> np.ndarray:
        ends, _, found = flat.range_search(codes, RADIUS + 1)  # exclusive
        ones = np.ones(len(found), dtype=np.int8)
        shape = (len(codes), len(codes))
        pairs = csr_array((ones, found, ends.astype(np.int64)), shape=shape)
        groups: np.ndarray = connected_components(pairs, directed=False)[1]
        return groups

    ours, theirs = connected_words(words[None], N_BITS, RADIUS), joined_pairs()
    if not np.array_equal(ours, np.unique(theirs, return_index=True)[1][theirs]):
        sys.exit("duplicates: our groups differ from faiss's")
    faiss_time, our_time = best(
        joined_pairs, lambda: connected_words(words[None], N_BITS, RADIUS), repeats=REPEATS
    )
    return faiss_time / our_time


def random_codes(n: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 1 << N_BITS, n, dtype=np.uint64)


def clustered_codes(n: int) -> np.ndarray:
    return flipped(random_codes(N_CLUSTERS), n, n_flips=3)


def copied_codes(n: int) -> np.ndarray:
    return flipped(random_codes(n // COPIES), n, n_flips=2)


def equal_codes(n: int) -> np.ndarray:
    """Return random codes, of which the first tenth is the same."""
    codes = random_codes(n)
    codes[: n // 10] = codes[0]
    return codes


def flipped(centres: np.ndarray, n: int, *, n_flips: int) -> np.ndarray:
    """Return codes near centres, as many of each, with random bits flipped."""
    rng = np.random.default_rng(1)
    codes = centres[np.arange(n) % len(centres)]
    for _ in range(n_flips):
        codes ^= np.uint64(1) << rng.integers(0, N_BITS, n, dtype=np.uint64)
    return codes


if __name__ == "__main__":
    sys.exit(main())
