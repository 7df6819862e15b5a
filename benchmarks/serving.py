"""Search by id over HTTP, on a million codes, against the same search inside of a process.

A server in a process of its own answers clients that keep their connections and ask one question
after the other, each for ten neighbours of a random item. Its processor time and memory are read
from its own figures. Then ten times as many clients as it lets in ask at once: it must refuse the
rest with 503 and go on answering.

Usage: serving.py [SECONDS] [INDEX] — 60 seconds, and codes made up for the purpose, unless given.
"""

import os

# Threads that wait must sleep: clients and server share these cores.
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
from orbithash.retrieval import answers

N_CODES, N_BITS, K = 1_000_000, 64, 10
CLIENTS, LET_IN = 32, 64
OVERLOAD_SECONDS = 5.0
N_INSIDE = 300  # searches that are timed inside of this process


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(sys.argv[2]) if len(sys.argv) > 2 else made_up(Path(folder) / "codes.orbit")
        with open_index(place) as index:
            ids = np.random.default_rng(0).permutation(len(index))
            inside = time_inside(index, ids)
        with server(place) as address:
            return compare(address, ids, seconds, inside)


def compare(address: str, ids: np.ndarray, seconds: float, inside: float) -> int:
    asyncio.run(ask(address, ids, clients=CLIENTS, seconds=min(3.0, seconds)))  # warm
    before = figures(address)
    statuses, times = asyncio.run(ask(address, ids, clients=CLIENTS, seconds=seconds))
    after = figures(address)
    n = statuses.total()
    processor = 1e3 * (after["process_cpu_seconds_total"] - before["process_cpu_seconds_total"]) / n
    memory = [each["process_resident_memory_bytes"] for each in (before, after)]
    middle, slowest = 1e3 * np.percentile(times, [50, 99])
    print(
        f"serving, {len(ids):,} codes of {N_BITS} bits, k = {K}, {CLIENTS} clients, "
        f"{seconds:g} s: {n / seconds:.0f} requests per second, p50 {middle:.1f} ms, "
        f"p99 {slowest:.1f} ms\n"
        f"  processor time of a request {processor:.2f} ms, of the search alone {inside:.2f} ms; "
        f"memory {memory[0] / 1e6:.0f} MB before, {memory[1] / 1e6:.0f} MB after"
    )
    passed = at_most("answers other than 200", n - statuses[200], 0)
    passed &= at_most("ms of processor time that the server adds", processor - inside, 3)
    passed &= at_most("times the memory from before", memory[1] / memory[0], 1.05)

    statuses, _ = asyncio.run(ask(address, ids, clients=10 * LET_IN, seconds=OVERLOAD_SECONDS))
    print(f"  {10 * LET_IN} clients at once: {dict(sorted(statuses.items()))}")
    passed &= at_least("answers 503, per second", statuses[503] / OVERLOAD_SECONDS, 1)
    passed &= at_least("answers 200 beside them, per second", statuses[200] / OVERLOAD_SECONDS, 1)
    passed &= at_most("answers of other kinds", n_others(statuses), 0)
    after, _ = asyncio.run(ask(address, ids, clients=1, seconds=0.5))
    passed &= at_most("answers other than 200 right afterwards", after.total() - after[200], 0)
    return 0 if passed else 1


def n_others(statuses: Counter[int]) -> int:
    return statuses.total() - statuses[200] - statuses[503]


def time_inside(index: Index, ids: np.ndarray) -> float:
    """Milliseconds of processor time of one such search without a server."""
    answers(index, like=[int(ids[0])], k=K)
    began = time.process_time()
    for i in ids[:N_INSIDE]:
        answers(index, like=[int(i)], k=K)
    return 1e3 * (time.process_time() - began) / N_INSIDE


async def ask(
    address: str, ids: np.ndarray, *, clients: int, seconds: float
) -> tuple[Counter[int], list[float]]:
    """How many answers of each status, and how long each took."""
    statuses: Counter[int] = Counter()
    times: list[float] = []
    place = urlsplit(address)
    deadline = time.perf_counter() + seconds

    async def client(number: int) -> None:
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        at = number
        while time.perf_counter() < deadline:
            began = time.perf_counter()
            writer.write(request(int(ids[at % len(ids)])))
            statuses[await status(reader)] += 1
            times.append(time.perf_counter() - began)
            at += clients
        writer.close()

    await asyncio.gather(*(client(number) for number in range(clients)))
    return statuses, times


def request(identifier: int) -> bytes:
    body = json.dumps({"id": identifier, "k": K}).encode()
    return (
        b"POST /api/v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        + f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


async def status(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    await reader.readexactly(int(length[1]) if length else 0)
    return int(head[9:12])


def figures(address: str) -> dict[str, float]:
    with urlopen(f"{address}metrics", timeout=30) as answer:
        lines = [line.split() for line in answer.read().decode().splitlines()]
    return {line[0]: float(line[1]) for line in lines if line and line[0] != "#"}


@contextmanager
def server(index: Path) -> Iterator[str]:
    """The address of a server, which is told to end afterwards."""
    limits = ["--rate", "0", "--concurrency", str(LET_IN)]
    command = [sys.executable, "-m", "orbithash", "serve", str(index), "--port", "0", *limits]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield next(line.strip() for line in process.stdout if line.startswith("  http"))
    finally:
        process.terminate()
        process.wait(timeout=60)


def made_up(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    with create_index(folder, N_BITS) as index:
        for start in range(0, N_CODES, 100_000):
            ids = np.arange(start, start + 100_000)
            codes = rng.integers(0, 256, (len(ids), N_BITS // 8), dtype=np.uint8)
            notes = [Metadata(f"/photos/{i}.jpg", (f"class {i % 200}",)) for i in ids]
            index.add(ids, codes, notes)
    return folder


if __name__ == "__main__":
    sys.exit(main())
