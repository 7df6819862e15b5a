"""Speed of scoring a million codes, compared with sorting and with searching them.

Full expected MAP of 1,000 queries against 1,000,000 codes of 64 bits in 100 classes, compared with

- the usual numpy code: per query, distances from ±1 codes, argsort, cumulative precision. It is
  measured on a few queries and scaled up, because all of them would take minutes;
- faiss `IndexBinaryFlat`, which finds the 100 nearest of the same queries in the same run, with
  the same number of threads.
"""

import os

# Waiting threads must sleep: numba and faiss alternate on the same cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import sys
from typing import Literal

import faiss
import numba
import numpy as np

from measure import at_least, at_most, best
from orbithash.evaluation import Scores, evaluate_codes

N_QUERIES, N_DATABASE, N_BITS, N_CLASSES = 1_000, 1_000_000, 64, 100
SORTED_QUERIES = 10
REPEATS = 5


def main() -> int:
    rng = np.random.default_rng(0)
    centres = rng.random((N_CLASSES, N_BITS)) < 0.5
    queries, query_labels = codes_near(centres, N_QUERIES, rng)
    database, database_labels = codes_near(centres, N_DATABASE, rng)
    index = faiss.IndexBinaryFlat(N_BITS)
    index.add(database)
    faiss.omp_set_num_threads(numba.get_num_threads())

    def score(ties: str = "expected", n: int = N_QUERIES) -> Scores:
        return evaluate_codes(
            queries[:n], database, query_labels[:n], database_labels, n_bits=N_BITS, ties=ties
        )

    sorted_codes = as_signs(queries[:SORTED_QUERIES]), as_signs(database)
    sorted_labels = query_labels[:SORTED_QUERIES], database_labels

    # Compile everything, and check that both give the same scores.
    by_sorting = sorted_map(*sorted_codes, *sorted_labels, kind="stable")
    by_counting = score("stable", SORTED_QUERIES).map
    if abs(by_sorting - by_counting) > 1e-9:
        sys.exit(f"evaluate: MAP is {by_sorting} by sorting, {by_counting} by counting")
    score()
    index.search(queries[:16], 100)

    score_time, search_time, sort_time = best(
        score,
        lambda: index.search(queries, 100),
        lambda: sorted_map(*sorted_codes, *sorted_labels),
        repeats=REPEATS,
    )
    sort_time *= N_QUERIES / SORTED_QUERIES
    print(
        f"evaluate, {N_QUERIES:,} queries, {N_DATABASE:,} codes of {N_BITS} bits, "
        f"{numba.get_num_threads()} threads; sorting is scaled up from {SORTED_QUERIES} queries"
    )
    passed = [
        at_least("times faster than numpy's argsort per query", sort_time / score_time, 30),
        at_most("times faiss IndexBinaryFlat's top 100", score_time / search_time, 1.5),
    ]
    return 0 if all(passed) else 1


def codes_near(
    centres: np.ndarray, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return codes of random classes: the class centre with a quarter of the bits flipped."""
    labels = rng.integers(0, len(centres), n)
    flipped = rng.random((n, centres.shape[1]), dtype=np.float32) < 0.25
    return np.packbits(centres[labels] ^ flipped, axis=1), labels


def sorted_map(
    queries: np.ndarray,
    database: np.ndarray,
    query_labels: np.ndarray,
    database_labels: np.ndarray,
    kind: Literal["quicksort", "stable"] = "quicksort",
) -> float:
    """Return MAP as evaluation scripts usually compute it: from ±1, by an argsort per query."""
    scores = []
    for query, label in zip(queries, query_labels, strict=True):
        distances = 0.5 * (N_BITS - database @ query)
        order = np.argsort(distances, kind=kind)
        ranks = np.flatnonzero(database_labels[order] == label) + 1
        scores.append(np.mean(np.arange(1, len(ranks) + 1) / ranks))
    return float(np.mean(scores))


def as_signs(codes: np.ndarray) -> np.ndarray:
    return np.unpackbits(codes, axis=1).astype(np.float32) * 2 - 1


if __name__ == "__main__":
    sys.exit(main())
