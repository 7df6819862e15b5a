"""Search, against faiss's flat binary index in the same run with the same threads.

    python benchmarks/search.py [CODES …]     default: 100000 1000000 10000000

Codes of 64 bits, random, in 1,000 clusters, and some twenty near-duplicates of each, with a bit
or two flipped; 1,000 queries together with k = 10 and 100, and one query alone. A figure is faiss's
time divided by ours: how many times faster. `exact` and `exact-mih` must find what faiss finds.

Approximate indexes of the clustered codes stand below for orientation, with the share of the ten
nearest that they find: faiss's inverted lists and graph, and usearch's graph where it is
installed. Graphs are built of 100,000 codes only, because that alone takes minutes for more.

The last column says how much of the time of one query would be needed to read the codes at all,
measured as their plain sum.
"""

import os

# Threads that wait must sleep: numba and faiss take turns on the same cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import sys
from collections.abc import Callable, Iterator
from typing import Any

import faiss
import numba
import numpy as np

from measure import at_least, best
from orbithash.index import ENGINES
from orbithash.kernels.hamming import as_words

N_BITS, N_QUERIES, N_CLUSTERS, COPIES = 64, 1_000, 1_000, 20
SIZES = (100_000, 1_000_000, 10_000_000)
CLAIMED = 1_000_000  # codes from which on the claims hold
GRAPHS, LISTS = 100_000, 1_000_000  # codes, at most, that approximate indexes are built of
REPEATS, REPEATS_OF_ONE = 3, 21

Search = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]  # distances, ids


def main() -> int:
    sizes = [int(size) for size in sys.argv[1:]] or SIZES
    faiss.omp_set_num_threads(numba.get_num_threads())
    print(f"search, {N_QUERIES:,} queries, {N_BITS} bits, {numba.get_num_threads()} threads;")
    print("times faster than faiss IndexBinaryFlat:\n")
    print(
        f"{'codes':>10}  {'kind':<10}  {'engine':<10}  {'k=10':>6}  {'k=100':>6}  {'one':>6}",
        end="",
    )
    print(f"  {'recall@10':>9}  {'reading':>7}")
    passed = []
    for size in sizes:
        for kind in (random_codes, clustered_codes, duplicated_codes):
            passed += compare(size, kind)
    print()
    return 0 if all([at_least(*claim) for claim in passed]) else 1


def compare(size: int, kind: Callable[[int], np.ndarray]) -> list[tuple[str, float, float]]:
    """Print a row for each engine, and return the claims: what, how much, how much it must be."""
    codes = kind(size + N_QUERIES)
    queries, database = codes[:N_QUERIES], codes[N_QUERIES:]
    flat = faiss.IndexBinaryFlat(N_BITS)
    flat.add(database)
    searches = dict(engines(database, approximate=kind is clustered_codes))
    recalls, together = {}, []
    for k in (10, 100):
        exact = flat.search(queries, k)
        shares = [share_found(search(queries, k), exact) for search in searches.values()]
        recalls[k] = dict(zip(searches, shares, strict=True))
        if recalls[k]["exact"] < 1 or recalls[k]["exact-mih"] < 1:
            sys.exit("search: an exact engine does not find what faiss finds")
        together.append(ratios(flat, searches, queries, k, repeats=REPEATS))
    alone = ratios(flat, searches, queries[:1], 10, repeats=REPEATS_OF_ONE)
    reading, searching = best(
        lambda: read(as_words(database)),
        lambda: searches["exact"](queries[:1], 10),
        repeats=REPEATS_OF_ONE,
    )
    name = kind.__name__.partition("_")[0]
    for engine in searches:
        figures = "  ".join(f"{measured[engine]:6.2f}" for measured in (*together, alone))
        end = f"  {reading / searching:7.0%}" if engine == "exact" else ""
        found = recalls[10][engine]
        print(f"{size:>10,}  {name:<10}  {engine:<10}  {figures}  {found:9.3f}{end}", flush=True)
    if size < CLAIMED or kind is duplicated_codes:
        return []
    return [
        (f"{size:,} {name} codes, k=10", together[0]["exact"], 2),
        (f"{size:,} {name} codes, k=100", together[1]["exact"], 2),
        (f"{size:,} {name} codes, one query", alone["exact"], 1),
    ]


def ratios(
    flat: Any, searches: dict[str, Search], queries: np.ndarray, k: int, *, repeats: int
) -> dict[str, float]:
    """How many times faster than the flat index each engine is."""
    runs = [lambda search=search: search(queries, k) for search in searches.values()]
    theirs, *ours = best(lambda: flat.search(queries, k), *runs, repeats=repeats)
    return {name: theirs / time for name, time in zip(searches, ours, strict=True)}


def engines(database: np.ndarray, *, approximate: bool) -> Iterator[tuple[str, Search]]:
    """The engines of these codes, as functions that build and compile at the first call."""
    for name in ("exact", "exact-mih"):
        index = ENGINES[name](N_BITS)
        index.add(np.arange(len(database)), database)
        yield name, searched_by(index)
    if not approximate:
        return
    for name, most in (("faiss-ivf", LISTS), ("faiss-hnsw", GRAPHS)):
        if len(database) <= most:
            index = ENGINES[name](N_BITS)
            index.add(np.arange(len(database)), database)
            yield name, searched_by(index)
    if len(database) <= GRAPHS:
        usearch = usearch_of(database)
        if usearch is None:
            print(f"{'':24}usearch is not installed: pip install usearch")
        else:
            yield "usearch", usearch


def searched_by(index: Any) -> Search:
    def search(queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        found = index.search(queries, k)
        return found.distances, found.ids

    return search


def usearch_of(database: np.ndarray) -> Search | None:
    try:
        from usearch.index import Index
    except ImportError:
        return None
    index = Index(ndim=N_BITS, metric="hamming", dtype="b1")
    threads = numba.get_num_threads()
    index.add(np.arange(len(database)), database, threads=threads)

    def search(queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        found = index.search(queries, k, threads=threads)
        return np.atleast_2d(found.distances), np.atleast_2d(found.keys)

    return search


def share_found(
    found: tuple[np.ndarray, np.ndarray], exact: tuple[np.ndarray, np.ndarray]
) -> float:
    """How many of the found are as near as the k nearest: of ties, any will do."""
    distances = np.asarray(found[0])
    return float(np.mean((distances >= 0) & (distances <= exact[0][:, -1:])))


@numba.njit(parallel=True)
def read(words: np.ndarray) -> int:
    total = np.uint64(0)
    for i in numba.prange(words.size):
        total += words[0, i]
    return total


def random_codes(n: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, N_BITS // 8), dtype=np.uint8)


def clustered_codes(n: int) -> np.ndarray:
    """Every tenth bit differs from the centre's."""
    return flipped(random_codes(N_CLUSTERS), n, share=0.1)


def duplicated_codes(n: int) -> np.ndarray:
    return flipped(random_codes(n // COPIES), n, share=0.02)


def flipped(centres: np.ndarray, n: int, share: float) -> np.ndarray:
    """Codes of random centres, each bit flipped by chance; made in parts that fit the memory."""
    rng = np.random.default_rng(1)
    codes = centres[rng.integers(0, len(centres), n)]
    for part in np.array_split(codes, -(-n // 100_000)):
        part ^= np.packbits(rng.random((len(part), N_BITS), dtype=np.float32) < share, axis=1)
    return codes


if __name__ == "__main__":
    sys.exit(main())
