"""Speed of search, compared with faiss's flat binary index in the same run with the same threads.

    python benchmarks/search.py [CODES …]     default: 100000 1000000 10000000

Codes of 64 bits: random, in 1,000 clusters, and with about twenty near-duplicates of each code, one
or two bits flipped. 1,000 queries together with k = 10 and 100, and one query alone. A figure is
faiss's time divided by ours: how many times faster. `exact` and `exact-mih` must return faiss's
distances.

Approximate indexes of the clustered codes are shown for comparison, with their recall@10: faiss's
inverted lists and graph, and usearch's graph if it is installed. Graphs are built of 100,000 codes
only, because building larger ones takes minutes.

The last column is the time to read all codes, measured as their sum, as a fraction of the time of
one query.
"""

import os

# Waiting threads must sleep: numba and faiss alternate on the same cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import sys
from collections.abc import Callable, Iterator
from typing import Any

import faiss
import numba
import numpy as np

from measure import at_least, best
from orbithash.index import ENGINES
from orbithash.kernels.plain_search import as_words

N_BITS, N_QUERIES, N_CLUSTERS, COPIES = 64, 1_000, 1_000, 20
SIZES = (100_000, 1_000_000, 10_000_000)
MIN_CLAIMED = 1_000_000  # the claims hold for at least this many codes
MAX_GRAPH, MAX_LISTS = 100_000, 1_000_000  # codes in approximate indexes
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
    """Print a row for each engine; return the claims with the measured and the required ratio."""
    codes = kind(size + N_QUERIES)
    queries, database = codes[:N_QUERIES], codes[N_QUERIES:]
    flat = faiss.IndexBinaryFlat(N_BITS)
    flat.add(database)
    searches = dict(engines(database, approximate=kind is clustered_codes))
    recalls, together = {}, []
    for k in (10, 100):
        exact = flat.search(queries, k)
        values = [recall(search(queries, k), exact) for search in searches.values()]
        recalls[k] = dict(zip(searches, values, strict=True))
        if recalls[k]["exact"] < 1 or recalls[k]["exact-mih"] < 1:
            sys.exit("search: the results of an exact engine differ from faiss's")
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
    if size < MIN_CLAIMED or kind is duplicated_codes:
        return []
    return [
        (f"{size:,} {name} codes, k=10", together[0]["exact"], 2),
        (f"{size:,} {name} codes, k=100", together[1]["exact"], 2),
        (f"{size:,} {name} codes, one query", alone["exact"], 1),
    ]


def ratios(
    flat: Any, searches: dict[str, Search], queries: np.ndarray, k: int, *, repeats: int
) -> dict[str, float]:
    """Return how many times faster than the flat index each engine is."""
    runs = [lambda search=search: search(queries, k) for search in searches.values()]
    theirs, *ours = best(lambda: flat.search(queries, k), *runs, repeats=repeats)
    return {name: theirs / time for name, time in zip(searches, ours, strict=True)}


def engines(database: np.ndarray, *, approximate: bool) -> Iterator[tuple[str, Search]]:
    """Yield search functions of the engines; the first call builds and compiles."""
    for name in ("exact", "exact-mih"):
        index = ENGINES[name](N_BITS)
        index.add(np.arange(len(database)), database)
        yield name, search_function(index)
    if not approximate:
        return
    for name, max_codes in (("faiss-ivf", MAX_LISTS), ("faiss-hnsw", MAX_GRAPH)):
        if len(database) <= max_codes:
            index = ENGINES[name](N_BITS)
            index.add(np.arange(len(database)), database)
            yield name, search_function(index)
    if len(database) <= MAX_GRAPH:
        usearch = usearch_function(database)
        if usearch is None:
            print(f"{'':24}usearch is not installed: pip install usearch")
        else:
            yield "usearch", usearch


def search_function(index: Any) -> Search:
    def search(queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        found = index.search(queries, k)
        return found.distances, found.ids

    return search


def usearch_function(database: np.ndarray) -> Search | None:
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


def recall(found: tuple[np.ndarray, np.ndarray], exact: tuple[np.ndarray, np.ndarray]) -> float:
    """Return the fraction of results that are as near as the k nearest; ties are equivalent."""
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
    """Return codes in clusters; a tenth of the bits differ from the centre."""
    return flipped(random_codes(N_CLUSTERS), n, flip_rate=0.1)


def duplicated_codes(n: int) -> np.ndarray:
    return flipped(random_codes(n // COPIES), n, flip_rate=0.02)


def flipped(centres: np.ndarray, n: int, flip_rate: float) -> np.ndarray:
    """Return codes near random centres, with random bits flipped; in parts, to save memory."""
    rng = np.random.default_rng(1)
    codes = centres[rng.integers(0, len(centres), n)]
    for part in np.array_split(codes, -(-n // 100_000)):
        part ^= np.packbits(rng.random((len(part), N_BITS), dtype=np.float32) < flip_rate, axis=1)
    return codes


if __name__ == "__main__":
    sys.exit(main())
