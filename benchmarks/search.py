"""Speed of search, compared with faiss's flat binary index in the same run with the same threads.

    python benchmarks/search.py [CODES …]     default: 100000 1000000 10000000

Codes of 64 bits: random, in 1,000 clusters, and with about twenty near-duplicates of each code, one
or two bits flipped. 1,000 queries together and one query alone, with k = 10 and 100. A figure is
faiss's time divided by ours: how many times faster. `exact` and `exact-mih` must return faiss's
distances.

The rows `trained` and `uniform` are searches of `exact` by embeddings with the same codes as
queries, compared with faiss's search by Hamming distance. Values of `trained` are sigmoids of
normally distributed numbers, with a standard deviation of 4; those of `uniform` are anywhere in
[0, 1]. For some queries the result must equal a sort of all asymmetric distances. "× Hamming" is
their time divided by that of `exact` for codes, in the order of the columns.

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
from orbithash.codes import asymmetric_distances, unpack
from orbithash.index import ENGINES
from orbithash.kernels.plain_search import as_words

N_BITS, N_QUERIES, N_CLUSTERS, COPIES = 64, 1_000, 1_000, 20
SIZES = (100_000, 1_000_000, 10_000_000)
MIN_CLAIMED = 1_000_000  # the claims hold for at least this many codes
MAX_GRAPH, MAX_LISTS = 100_000, 1_000_000  # codes in approximate indexes
REPEATS, REPEATS_OF_ONE = 3, 21
N_CHECKED, CHECKED_CODES = 5, 100_000  # embeddings that are checked, and codes at once
KINDS_OF_EMBEDDINGS = ("trained", "uniform")

Search = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]  # distances, ids


def main() -> int:
    sizes = [int(size) for size in sys.argv[1:]] or SIZES
    faiss.omp_set_num_threads(numba.get_num_threads())
    print(f"search, {N_QUERIES:,} queries, {N_BITS} bits, {numba.get_num_threads()} threads;")
    print("times faster than faiss IndexBinaryFlat:\n")
    print(f"{'':36}  {'batch':>14}  {'one query':>14}")
    columns = "  ".join(f"{name:>6}" for name in ("k=10", "k=100", "k=10", "k=100"))
    print(f"{'codes':>10}  {'kind':<10}  {'search':<10}    {columns}", end="")
    print(f"  {'recall@10':>9}  {'reading':>7}  {'× Hamming':>19}")
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
    searches = dict(engines(queries, database, approximate=kind is clustered_codes))
    recalls, measured = {}, []
    for k in (10, 100):
        exact = flat.search(queries, k)
        by_code = [name for name in searches if name not in KINDS_OF_EMBEDDINGS]
        recalls[k] = {name: recall(searches[name](queries, k), exact) for name in by_code}
        if recalls[k]["exact"] < 1 or recalls[k]["exact-mih"] < 1:
            sys.exit("search: the results of an exact engine differ from faiss's")
        measured.append(ratios(flat, searches, queries, k, repeats=REPEATS))
    for k in (10, 100):
        measured.append(ratios(flat, searches, queries[:1], k, repeats=REPEATS_OF_ONE))
    reading, searching = best(
        lambda: read(as_words(database)),
        lambda: searches["exact"](queries[:1], 10),
        repeats=REPEATS_OF_ONE,
    )
    name = kind.__name__.partition("_")[0]
    for engine in searches:
        figures = "  ".join(f"{column[engine]:6.2f}" for column in measured)
        end = f"  {recalls[10][engine]:9.3f}" if engine in recalls[10] else f"{'':20}"
        if engine == "exact":
            end += f"  {reading / searching:7.0%}"
        if engine in KINDS_OF_EMBEDDINGS:
            slower = (column["exact"] / column[engine] for column in measured)
            end += "  " + " ".join(f"{figure:4.1f}" for figure in slower)
        print(f"{size:>10,}  {name:<10}  {engine:<10}    {figures}{end}", flush=True)
    if size < MIN_CLAIMED or kind is duplicated_codes:
        return []
    columns = ("k=10", "k=100", "one query, k=10", "one query, k=100")
    return [
        (f"{size:,} {name} codes, {engine}, {column}", figures[engine], bar)
        for engine, bars in (("exact", (2, 2, 1, 1)), *((e, (1,) * 4) for e in KINDS_OF_EMBEDDINGS))
        for column, figures, bar in zip(columns, measured, bars, strict=True)
    ]


def ratios(
    flat: Any, searches: dict[str, Search], queries: np.ndarray, k: int, *, repeats: int
) -> dict[str, float]:
    """Return how many times faster than the flat index each engine is."""
    runs = [lambda search=search: search(queries, k) for search in searches.values()]
    theirs, *ours = best(lambda: flat.search(queries, k), *runs, repeats=repeats)
    return {name: theirs / time for name, time in zip(searches, ours, strict=True)}


def engines(
    queries: np.ndarray, database: np.ndarray, *, approximate: bool
) -> Iterator[tuple[str, Search]]:
    """Yield search functions of the engines; the first call builds and compiles."""
    for name in ("exact", "exact-mih"):
        index = ENGINES[name](N_BITS)
        index.add(np.arange(len(database)), database)
        yield name, search_function(index)
        if name == "exact":
            for kind in KINDS_OF_EMBEDDINGS:
                yield kind, embeddings_function(index, kind, queries, database)
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


def embeddings_function(index: Any, kind: str, codes: np.ndarray, database: np.ndarray) -> Search:
    """Return a search by embeddings that have the given codes; stop if its results are wrong."""
    embeddings = embeddings_of(kind, codes)

    def search(queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        found = index.search(embeddings[: len(queries)], k)
        return found.distances, found.ids

    for k in (10, 100):
        _, ids = search(codes[:N_CHECKED], k)
        parts = np.array_split(database, -(-len(database) // CHECKED_CODES))
        exact = np.hstack([asymmetric_distances(embeddings[:N_CHECKED], part) for part in parts])
        nearest = np.argsort(exact, axis=1, kind="stable")[:, :k]
        if not np.array_equal(ids, nearest):
            sys.exit("search: the nearest by asymmetric distance differ from a sort of all")
    return search


def embeddings_of(kind: str, codes: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(2)
    shape = len(codes), N_BITS
    if kind == "trained":
        from_bit = 1 / (1 + np.exp(np.abs(rng.normal(0, 4, shape))))
    else:
        from_bit = 0.5 * rng.random(shape)
    return np.abs(unpack(codes, N_BITS) - from_bit)


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
