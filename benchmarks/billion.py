"""Indexes of many codes: building, opening, memory, and searching, against reading the codes once.

    python benchmarks/billion.py [CODES …] [--kind clustered] [--folder FOLDER] [--out REPORT]

Default: 100000 1000000 10000000 random codes of 64 bits, in a temporary folder. It takes any number
of codes that fit: it checks the disk first (9 bytes a code) and, because all codes should stay in
the page cache, the memory. The index is removed in the end. `clustered` codes are near 1,000 random
ones, about a tenth of their bits flipped.

build     seconds for storing the codes under a range of ids, without making them
disk      bytes a code, of all files
open      seconds in a new process from opening the index to the first answer, which verifies all
          codes; with `import`, the time that Python and the compiled loops take to load
memory    bytes a code over all processes of `orbithash serve --workers 2` after searches (PSS:
          shared pages count once), and without the megabytes of such a server of 100,000 codes
one, 100  milliseconds of one query and of a batch of 100, k = 10, and their times in multiples of
          the time in which all cores read the codes once, measured beside them
faiss     how many times faster the batch is than faiss's flat index, up to ten million codes
mih       how many times faster 100 queries with near-duplicates in the index are with `exact-mih`
          than by scans, up to a hundred million codes
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numba
import numpy as np

from measure import at_least, at_most, best
from orbithash.index import create_index, open_index
from orbithash.index.store.reading import folder_bytes

SMALL = 100_000  # codes that take no memory to speak of, but more than numpy would search
N_BITS, N_CLUSTERS, BATCH, N_QUERIES, K = 64, 1000, 1 << 20, 100, 10
DISK_BYTES, MEMORY_BYTES = 9, 9  # of each code
MAX_FAISS, MAX_TABLES = 10_000_000, 100_000_000
REPEATS, REPEATS_OF_ONE, N_REQUESTS = 5, 31, 40
CLAIMED = 100_000_000  # codes that the claims are about
COLUMNS = (
    *("codes", "build", "disk", "import", "open", "memory", "net"),
    *("one ms", "× read", "100 ms", "× read", "faiss", "mih"),
)


def main() -> int:
    if sys.argv[1:2] == ["--open"]:
        return first_answer(Path(sys.argv[2]))
    parser = argparse.ArgumentParser(description="Indexes of many codes.")
    parser.add_argument("codes", nargs="*", type=int, default=[10**5, 10**6, 10**7])
    parser.add_argument("--kind", choices=("random", "clustered"), default="random")
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    print(f"{given.kind} codes of {N_BITS} bits, {numba.get_num_threads()} threads\n")
    print("  ".join(f"{name:>11}" if name == "codes" else f"{name:>7}" for name in COLUMNS))
    rows, passed = [], []
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        empty = server_bytes(small_index(Path(folder) / "small.orbit"), SMALL)
        for n in given.codes:
            check_room(n, Path(folder))
            row = measure(n, given.kind, Path(folder) / "codes.orbit", empty)
            shutil.rmtree(Path(folder) / "codes.orbit")
            rows.append(row)
            print(as_line(row), flush=True)
            passed += claims(row)
    if given.out:
        given.out.write_text(json.dumps({"kind": given.kind, "rows": rows}, indent=1))
    print()
    return 0 if all([claim(*values) for claim, *values in passed]) else 1


def claims(row: dict[str, float]) -> list[tuple[Any, ...]]:
    n = f"{row['codes']:,} codes"
    found: list[tuple[Any, ...]] = []
    if row["codes"] == CLAIMED:
        found += [
            (at_most, f"{n}: bytes in memory a code, two workers", row["memory"], 9),
            (at_most, f"{n}: seconds to the first answer", row["open"], 2),
        ]
    if row["codes"] >= CLAIMED:
        found.append((at_most, f"{n}: one query × reading", row["one"] / row["read"], 1.4))
    if row["codes"] == MAX_FAISS:
        found.append((at_least, f"{n}: batch of 100 × faiss", row["faiss"], 8))
    return found


def as_line(row: dict[str, Any]) -> str:
    def cell(name: str, digits: int = 2) -> str:
        return f"{row[name]:7.{digits}f}" if row.get(name) is not None else f"{'':7}"

    times = [f"{1e3 * row[name]:7.2f}  {row[name] / row['read']:7.2f}" for name in ("one", "batch")]
    first = [cell(name) for name in ("build", "disk", "import", "open", "memory", "net")]
    return "  ".join([f"{row['codes']:>11,}", *first, *times, cell("faiss", 1), cell("mih", 1)])


def measure(n: int, kind: str, folder: Path, empty: float) -> dict[str, Any]:
    row: dict[str, Any] = {"codes": n}
    making = [0.0]
    start = time.perf_counter()
    with create_index(folder, N_BITS) as index:
        index.add_codes(n, timed(codes_of(kind, n), making))
    row["build"] = time.perf_counter() - start - making[0]
    row["disk"] = folder_bytes(folder) / n
    opened = subprocess.check_output([sys.executable, __file__, "--open", str(folder)], text=True)
    row |= json.loads(opened)
    memory = server_bytes(folder, n)
    row["memory"], row["net"] = memory / n, (memory - empty) / n
    with open_index(folder) as index:
        queries = next(codes_of(kind, N_QUERIES, seed=1))
        table = index._refresh(None)[0]
        row["read"], row["one"] = best(
            lambda: read(table.words),
            lambda: index.search(queries[:1], K),
            repeats=REPEATS_OF_ONE,
        )
        (row["batch"],) = best(lambda: index.search(queries, K), repeats=REPEATS)
        if n <= MAX_FAISS:
            row["faiss"] = against_faiss(index, table.codes(), queries)
        near = table.codes(np.sort(np.random.default_rng(2).integers(0, n, N_QUERIES)))
        near ^= np.uint8(1)  # one bit from a stored code
    if n <= MAX_TABLES and n * 40 < available_memory():
        row["mih"] = by_tables(folder, near)
    return row


def by_tables(folder: Path, queries: np.ndarray) -> float:
    """Return how many times faster the nearest of queries is found by hash tables."""
    with open_index(folder) as scan, open_index(folder, engine="exact-mih") as tables:
        expected, found = scan.search(queries, 1), tables.search(queries, 1)
        if not np.array_equal(expected.ids, found.ids):
            sys.exit("billion: exact-mih differs from the scan")
        scanning, probing = best(
            lambda: scan.search(queries, 1), lambda: tables.search(queries, 1), repeats=REPEATS
        )
    return scanning / probing


def against_faiss(index: Any, codes: np.ndarray, queries: np.ndarray) -> float:
    import faiss

    faiss.omp_set_num_threads(numba.get_num_threads())
    flat = faiss.IndexBinaryFlat(N_BITS)
    flat.add(codes)
    if not np.array_equal(flat.search(queries, K)[0], index.search(queries, K).distances):
        sys.exit("billion: the distances differ from faiss's")
    theirs, ours = best(
        lambda: flat.search(queries, K), lambda: index.search(queries, K), repeats=REPEATS
    )
    return theirs / ours


def first_answer(folder: Path) -> int:
    """Print the seconds for loading the library and for opening the index until it answers."""
    began = time.perf_counter()
    query = np.zeros((1, N_BITS // 8), dtype=np.uint8)
    with open_index(folder) as index:
        index.search(query, K)
        seconds = time.perf_counter() - began
    started = float(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    lived = uptime - started / os.sysconf("SC_CLK_TCK")
    print(json.dumps({"open": seconds, "import": lived - seconds}))
    return 0


def server_bytes(folder: Path, n: int) -> float:
    """Return the memory of a server with two workers, after requests that both have answered."""
    command = [sys.executable, "-m", "orbithash", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(
        [*command, "--workers", "2", "--rate", "0"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            address = next(line.strip() for line in process.stdout if line.startswith("  http"))
            rng = np.random.default_rng(0)
            for identifier in rng.integers(0, n, N_REQUESTS).tolist():
                body = json.dumps({"id": identifier, "k": K}).encode()
                headers = {"Content-Type": "application/json"}
                urlopen(Request(f"{address}api/v1/search", body, headers), timeout=600).read()
            return sum(pss(each) for each in with_children(process.pid))
        finally:
            process.terminate()


def pss(process: int) -> int:
    text = Path(f"/proc/{process}/smaps_rollup").read_text()
    return 1024 * int(re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE)[1])  # type: ignore[index]


def with_children(process: int) -> list[int]:
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [process, *(each for child in children for each in with_children(int(child)))]


def codes_of(kind: str, n: int, *, seed: int = 0) -> Iterator[np.ndarray]:
    rng = np.random.default_rng([seed, n])
    centres = np.random.default_rng(7).integers(0, 1 << 64, N_CLUSTERS, dtype=np.uint64)
    for start in range(0, n, BATCH):
        size = min(BATCH, n - start)
        words = rng.integers(0, 1 << 64, (1 if kind == "random" else 5, size), dtype=np.uint64)
        if kind == "clustered":
            # A bit is set in all of three and in any of two with probability 3/32.
            flips = words[0] & words[1] & words[2] & (words[3] | words[4])
            words = (centres[rng.integers(0, N_CLUSTERS, size)] ^ flips)[None]
        yield words.T.copy().view(np.uint8)


def timed(batches: Iterator[np.ndarray], seconds: list[float]) -> Iterator[np.ndarray]:
    while True:
        start = time.perf_counter()
        batch = next(batches, None)
        seconds[0] += time.perf_counter() - start
        if batch is None:
            return
        yield batch


def small_index(folder: Path) -> Path:
    with create_index(folder, N_BITS) as index:
        index.add(codes=next(codes_of("random", SMALL)))
    return folder


def check_room(n: int, folder: Path) -> None:
    """Stop if the codes do not fit on the disk or in memory."""
    room: list[tuple[str, int, Callable[[], int]]] = [
        ("on the disk", DISK_BYTES, lambda: shutil.disk_usage(folder).free),
        ("of memory", MEMORY_BYTES, available_memory),
    ]
    for name, size, free in room:
        if n * size > free():
            sys.exit(
                f"billion: {n:,} codes need {n * size / 1e9:.1f} GB {name}, and "
                f"{free() / 1e9:.1f} are free; give fewer, or another --folder"
            )


def available_memory() -> int:
    text = Path("/proc/meminfo").read_text()
    return 1024 * int(re.search(r"MemAvailable:\s+(\d+)", text)[1])  # type: ignore[index]


@numba.njit(parallel=True)
def read(words: np.ndarray) -> int:
    total = np.uint64(0)
    for i in numba.prange(words.size):
        total += words[0, i]
    return total


if __name__ == "__main__":
    sys.exit(main())
