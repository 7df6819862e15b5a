"""Search by id over HTTP on a million codes, compared with the same search in-process.

A server in a separate process serves clients that keep their connections open and send one search
after the other, each for the ten neighbours of a random item. CPU time and memory of the server
come from its metrics. Then ten times as many clients as the concurrency limit send requests at
once: each waits for its turn, and gets a 503 if that takes longer than two seconds.

Usage: serving.py [SECONDS] [INDEX]; default: 60 seconds and an index of random codes.
"""

import os

# Waiting threads must sleep, because clients and server share the cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np

from measure import at_least, at_most
from orbithash.index import Index, Metadata, create_index, open_index
from orbithash.retrieval import Query, find

N_CODES, N_BITS, K = 1_000_000, 64, 10
N_CLIENTS, MAX_CONCURRENCY = 32, 64
WARM_UP_SECONDS, OVERLOAD_SECONDS = 3.0, 5.0
N_IN_PROCESS = 300  # searches timed without the server


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with tempfile.TemporaryDirectory() as folder:
        path = (
            Path(sys.argv[2]) if len(sys.argv) > 2 else random_index(Path(folder) / "codes.orbit")
        )
        with open_index(path) as index:
            ids = np.random.default_rng(0).permutation(len(index))
            search_ms = time_in_process(index, ids)
        limits = ["--rate", "0", "--concurrency", str(MAX_CONCURRENCY)]
        with server(path, limits) as address:
            return compare(address, ids, seconds, search_ms)


def compare(address: str, ids: np.ndarray, seconds: float, search_ms: float) -> int:
    asyncio.run(load(address, ids, n_clients=N_CLIENTS, seconds=min(WARM_UP_SECONDS, seconds)))
    before = read_metrics(address)
    statuses, latencies = asyncio.run(load(address, ids, n_clients=N_CLIENTS, seconds=seconds))
    after = read_metrics(address)
    n = statuses.total()
    cpu_ms = 1e3 * (after["process_cpu_seconds_total"] - before["process_cpu_seconds_total"]) / n
    memory = [metrics["process_resident_memory_bytes"] for metrics in (before, after)]
    p50, p99 = 1e3 * np.percentile(latencies, [50, 99])
    print(
        f"serving, {len(ids):,} codes of {N_BITS} bits, k = {K}, {N_CLIENTS} clients, "
        f"{seconds:g} s: {n / seconds:.0f} requests per second, p50 {p50:.1f} ms, "
        f"p99 {p99:.1f} ms\n"
        f"  CPU time per request {cpu_ms:.2f} ms, of the search alone {search_ms:.2f} ms; "
        f"memory {memory[0] / 1e6:.0f} MB before, {memory[1] / 1e6:.0f} MB after"
    )
    passed = at_most("responses other than 200", n - statuses[200], 0)
    passed &= at_most("ms of CPU time added by the server", cpu_ms - search_ms, 3)
    passed &= at_most("times the memory before", memory[1] / memory[0], 1.05)

    n_overload = 10 * MAX_CONCURRENCY
    statuses, _ = asyncio.run(load(address, ids, n_clients=n_overload, seconds=OVERLOAD_SECONDS))
    print(f"  {n_overload} clients at once: {dict(sorted(statuses.items()))}")
    n_others = statuses.total() - statuses[200] - statuses[503]
    passed &= at_least("responses 200 per second", statuses[200] / OVERLOAD_SECONDS, 1)
    passed &= at_most("responses of other kinds", n_others, 0)
    statuses, _ = asyncio.run(load(address, ids, n_clients=1, seconds=0.5))
    passed &= at_most("responses other than 200 afterwards", statuses.total() - statuses[200], 0)
    return 0 if passed else 1


def time_in_process(index: Index, ids: np.ndarray) -> float:
    """Return the CPU time of one search without a server, in milliseconds."""
    find(index, [Query(id=int(ids[0]), k=K)])
    start = time.process_time()
    for i in ids[:N_IN_PROCESS]:
        find(index, [Query(id=int(i), k=K)])
    return 1e3 * (time.process_time() - start) / N_IN_PROCESS


async def load(
    address: str, ids: np.ndarray, *, n_clients: int, seconds: float
) -> tuple[Counter[int], list[float]]:
    """Send searches from several clients; return the statuses and latencies of the responses."""
    statuses: Counter[int] = Counter()
    latencies: list[float] = []
    url = urlsplit(address)
    deadline = time.perf_counter() + seconds

    async def client(number: int) -> None:
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        position = number
        while time.perf_counter() < deadline:
            start = time.perf_counter()
            writer.write(search_request(int(ids[position % len(ids)])))
            statuses[await read_status(reader)] += 1
            latencies.append(time.perf_counter() - start)
            position += n_clients
        writer.close()

    await asyncio.gather(*(client(number) for number in range(n_clients)))
    return statuses, latencies


def search_request(identifier: int) -> bytes:
    body = json.dumps({"id": identifier, "k": K}).encode()
    return (
        b"POST /api/v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        + f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


async def read_status(reader: asyncio.StreamReader) -> int:
    """Read a whole response and return its status."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    await reader.readexactly(int(length[1]) if length else 0)
    return int(head[9:12])


def read_metrics(address: str) -> dict[str, float]:
    with urlopen(f"{address}metrics", timeout=30) as response:
        lines = [line.split() for line in response.read().decode().splitlines()]
    return {line[0]: float(line[1]) for line in lines if line and line[0] != "#"}


@contextmanager
def server(index: Path, options: list[str]) -> Iterator[str]:
    """Start a server, yield its address, and terminate it."""
    command = [sys.executable, "-m", "orbithash", "serve", str(index), "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield next(line.strip() for line in process.stdout if line.startswith("  http"))
    finally:
        process.terminate()
        process.wait(timeout=60)


def random_index(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    with create_index(folder, N_BITS) as index:
        for start in range(0, N_CODES, 100_000):
            ids = np.arange(start, start + 100_000)
            codes = rng.integers(0, 256, (len(ids), N_BITS // 8), dtype=np.uint8)
            metadata = [Metadata(f"/photos/{i}.jpg", (f"class {i % 200}",)) for i in ids]
            index.add(ids, codes, metadata)
    return folder


if __name__ == "__main__":
    sys.exit(main())
