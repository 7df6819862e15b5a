"""Search of a Milvus server beside ours, on the same codes and the same machine.

    python benchmarks/milvus.py http://127.0.0.1:19530 [CODES …]     default: 10000000

Clustered codes of 64 bits, as in billion.py, k = 10. Queries are in the clusters, but not stored.
The server must run already, for example as the tests start it (see tests/milvus_servers.py); its
collection is removed in the end. Milvus searches with consistency "eventually", so that it waits
for nothing.

stored    thousands of codes stored in a second
indexed   seconds from then until all codes are searched by the index
one, 100  queries per second, one at a time and 100 together: the median of several
recall    of the ten nearest: how many results are as near as the tenth nearest
"""

import argparse
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np

from billion import codes_of
from orbithash.index import create_index, open_index
from orbithash.index.milvus.milvus_index import MilvusIndex, MilvusInvertedIndex

N_BITS, K, BATCH = 64, 10, 100
REPEATS, REPEATS_OF_ONE = 5, 20
PATIENCE = 1800.0  # seconds for the server to index


def main() -> int:
    parser = argparse.ArgumentParser(description="Search of a Milvus server beside ours.")
    parser.add_argument("server")
    parser.add_argument("codes", nargs="*", type=int, default=[10**7])
    given = parser.parse_args()
    print(f"clustered codes of {N_BITS} bits, k = {K}, {numba.get_num_threads()} threads\n")
    columns = "".join(f"  {name:>8}" for name in ("stored", "indexed", "one", "100", "recall"))
    print(f"{'codes':>11}  {'':<20}{columns}")
    for n in given.codes:
        compare(n, given.server)
    return 0


def compare(n: int, server: str) -> None:
    queries = next(codes_of("clustered", BATCH, seed=1))
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        with create_index(Path(folder) / "codes.orbit", N_BITS) as index:
            index.add_codes(n, codes_of("clustered", n))
        seconds = time.perf_counter() - start
        with open_index(Path(folder) / "codes.orbit") as index:
            nearest = index.search(queries, K).distances
            show(n, "orbithash exact", seconds, 0.0, index, queries, nearest)
    collection = f"bench_{uuid.uuid4().hex[:12]}"
    stored = MilvusIndex(N_BITS, server=server, collection=collection)
    try:
        start = time.perf_counter()
        first = 0
        for batch in codes_of("clustered", n):
            stored.update(np.arange(first, first + len(batch)), batch)
            first += len(batch)
        seconds = time.perf_counter() - start
        for kind in (MilvusIndex, MilvusInvertedIndex):
            indexed = timed(lambda kind=kind: reindex(stored, kind, n))  # type: ignore[misc]
            index = kind(server=server, collection=collection, consistency="eventually")
            show(n, f"Milvus {kind.index_type}", seconds, indexed, index, queries, nearest)
            index.close()
    finally:
        stored._server.drop(collection)
        stored.close()


def reindex(index: MilvusIndex, kind: type[MilvusIndex], n: int) -> None:
    """Let the server index all codes in one way, and wait until it has."""
    server, name = index._server, index.collection
    server.call("flush", name)
    server.call("release_collection", name)
    for existing in server.call("list_indexes", name):
        server.call("drop_index", name, existing)
    server.make_searchable(name, kind.index_type, "code")
    until = time.perf_counter() + PATIENCE
    while True:
        (existing,) = server.call("list_indexes", name)
        facts = server.call("describe_index", name, existing)
        if facts["pending_index_rows"] == 0 and facts["indexed_rows"] >= n:
            break
        if time.perf_counter() > until:
            sys.exit(f"milvus: only {facts['indexed_rows']:,} of {n:,} codes are indexed")
        time.sleep(1)
    server.call("refresh_load", name)


def show(
    n: int,
    name: str,
    stored: float,
    indexed: float,
    index: Any,
    queries: np.ndarray,
    nearest: np.ndarray,
) -> None:
    found = index.search(queries, K).distances
    recall = np.mean((found >= 0) & (found <= nearest[:, -1:]))
    one = rate(lambda i: index.search(queries[i : i + 1], K), REPEATS_OF_ONE)
    batch = BATCH * rate(lambda _: index.search(queries, K), REPEATS)
    print(
        f"{n:>11,}  {name:<20}  {n / stored / 1000:8.1f}  {indexed:8.1f}  {one:8.1f}  {batch:8.1f}"
        f"  {recall:8.3f}",
        flush=True,
    )


def rate(search: Callable[[int], object], repeats: int) -> float:
    """Return how many searches fit in a second."""
    return 1 / statistics.median(timed(lambda i=i: search(i)) for i in range(repeats))  # type: ignore[misc]


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
