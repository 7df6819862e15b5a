"""One unfriendly client beside a friendly one: how many searches per second the friendly one keeps.

A server on loopback serves 300,000 codes. The friendly client, 127.0.0.1, searches by id over four
connections. It is measured alone, and while another client, 127.0.0.2, attacks over 16 connections:

batches   the most expensive batches that are allowed, and those of 64 searches with k = 1000
filters   batches whose searches have different labels, each of all items
json      bodies of 16 MB of empty lists
refusals  requests without a pause, most of which exceed the rate limit

Then the same behind a proxy on 127.0.0.1, which names the clients in a header; and 640 clients
instead of 32, of which the server serves as many per second as it can. Everything ends by itself.

Usage: unfriendly.py [SECONDS] for each measurement, 5 by default.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import asyncio
import json
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from measure import at_least, at_most
from orbithash.index import Metadata, create_index
from serving import load, read_status, server

N_CODES, N_BITS, N_LABELS = 300_000, 64, 200
FRIENDLY, UNFRIENDLY = "127.0.0.1", "127.0.0.2"
N_FRIENDLY, N_UNFRIENDLY = 4, 16  # connections
ATTACKS = ("batches", "filters", "json", "refusals")
PAUSE = 1.0  # seconds until an attack is under way


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    passed = True
    with tempfile.TemporaryDirectory() as folder:
        index = labelled_index(Path(folder) / "codes.orbit")
        for behind_proxy in (False, True):
            options = ["--rate", "100", *(["--behind-proxy", "--public"] if behind_proxy else [])]
            with server(index, options) as address:
                passed &= compare(address, seconds, behind_proxy=behind_proxy)
        with server(index, ["--rate", "0", "--concurrency", "64"]) as address:
            passed &= overload(address, seconds)
    return 0 if passed else 1


def compare(address: str, seconds: float, *, behind_proxy: bool) -> bool:
    """Measure the friendly client alone, beside each attack, and alone again."""
    print("behind a proxy" if behind_proxy else "by address", flush=True)
    friendly(address, 1.0, behind_proxy=behind_proxy)
    passed, alone = True, friendly(address, seconds, behind_proxy=behind_proxy)[0]
    for attack in ATTACKS:
        with attacking(address, attack, seconds + 4 * PAUSE, behind_proxy=behind_proxy):
            time.sleep(PAUSE)
            rate, slowest, n_failed = friendly(address, seconds, behind_proxy=behind_proxy)
        before, alone = alone, friendly(address, seconds, behind_proxy=behind_proxy)[0]
        print(
            f"  beside {attack}: {rate:.0f} searches per second, the slowest took {slowest:.2f} s; "
            f"alone {before:.0f} before and {alone:.0f} after",
            flush=True,
        )
        passed &= at_least(f"of the searches beside {attack}", 2 * rate / (before + alone), 0.5)
        passed &= at_most(f"searches that failed beside {attack}", n_failed, 0)
    return passed


def overload(address: str, seconds: float) -> bool:
    ids = np.random.default_rng(0).permutation(N_CODES)
    asyncio.run(load(address, ids, n_clients=32, seconds=1.0))
    rates = []
    for n_clients in (32, 640, 32, 640):
        statuses, _ = asyncio.run(load(address, ids, n_clients=n_clients, seconds=seconds))
        rates.append(statuses[200] / seconds)
        print(f"  {n_clients} clients: {dict(sorted(statuses.items()))}", flush=True)
    return at_least(
        "of the good responses of 32 clients with 640",
        (rates[1] + rates[3]) / (rates[0] + rates[2]),
        0.8,
    )


def friendly(address: str, seconds: float, *, behind_proxy: bool) -> tuple[float, float, int]:
    """Return searches per second, seconds of the slowest, and the number that failed."""
    ids = np.random.default_rng(1).integers(0, N_CODES, 10_000)
    header = f"X-Forwarded-For: {FRIENDLY_NAME}\r\n" if behind_proxy else ""
    statuses: Counter[int] = Counter()
    slowest = 0.0
    deadline = time.perf_counter() + seconds

    async def client(number: int) -> None:
        nonlocal slowest
        reader, writer = await connect(address, FRIENDLY)
        position = number
        while (start := time.perf_counter()) < deadline:
            body = json.dumps({"id": int(ids[position % len(ids)]), "k": 10}).encode()
            writer.write(post("search", body, header))
            statuses[await read_status(reader)] += 1
            slowest = max(slowest, time.perf_counter() - start)
            position += N_FRIENDLY
            # Below the rate limit: it is about the others.
            await asyncio.sleep(max(0.0, start + N_FRIENDLY / 90 - time.perf_counter()))
        writer.close()

    async def clients() -> None:
        await asyncio.gather(*(client(number) for number in range(N_FRIENDLY)))

    asyncio.run(clients())
    return statuses[200] / seconds, slowest, statuses.total() - statuses[200]


FRIENDLY_NAME, UNFRIENDLY_NAME = "192.0.2.1", "192.0.2.2"  # that the proxy gives


@contextmanager
def attacking(address: str, attack: str, seconds: float, *, behind_proxy: bool) -> Iterator[None]:
    """Attack from another process while the block runs."""
    arguments = (address, attack, seconds, behind_proxy)
    process = multiprocessing.get_context("spawn").Process(target=run_attack, args=arguments)
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def run_attack(address: str, attack: str, seconds: float, behind_proxy: bool) -> None:
    header = f"X-Forwarded-For: {UNFRIENDLY_NAME}\r\n" if behind_proxy else ""
    requests = attack_requests(attack, header)
    deadline = time.perf_counter() + seconds

    async def client(number: int) -> None:
        position = number
        while time.perf_counter() < deadline:
            with suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await connect(address, FRIENDLY if behind_proxy else UNFRIENDLY)
                while time.perf_counter() < deadline:
                    writer.write(requests[position % len(requests)])
                    await read_status(reader)
                    position += 1

    async def clients() -> None:
        await asyncio.gather(*(client(number) for number in range(N_UNFRIENDLY)))

    asyncio.run(clients())


def attack_requests(attack: str, header: str) -> list[bytes]:
    match attack:
        case "batches":
            batches = [[{"id": i, "k": 1000} for i in range(n)] for n in (10, 64)]
            return [post("search/batch", as_json({"searches": each}), header) for each in batches]
        case "filters":
            searches = [
                {"id": i, "k": 10, "labels": ["item", f"class {i}"]} for i in range(N_LABELS)
            ]
            batches = [searches[:33], searches[33:66], searches[:64]]
            return [post("search/batch", as_json({"searches": each}), header) for each in batches]
        case "json":
            body = b"[" + b"[]," * ((16 << 20) // 3 - 2) + b"[]]"
            small = b'{"searches":[' + b"[]," * 49_000 + b"[]]}"
            return [post("search", body, header), post("search/batch", small, header)]
    return [post("search", as_json({"id": 1}), header)]


async def connect(address: str, source: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    url = urlsplit(address)
    return await asyncio.open_connection(url.hostname, url.port, local_addr=(source, 0))


def as_json(body: object) -> bytes:
    return json.dumps(body).encode()


def post(path: str, body: bytes, header: str) -> bytes:
    head = (
        f"POST /api/v1/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"{header}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def labelled_index(folder: Path) -> Path:
    """Index random codes, each with a label of its own class and with one that all items have."""
    rng = np.random.default_rng(0)
    with create_index(folder, N_BITS) as index:
        for start in range(0, N_CODES, 100_000):
            ids = np.arange(start, start + 100_000)
            codes = rng.integers(0, 256, (len(ids), N_BITS // 8), dtype=np.uint8)
            metadata = [Metadata(f"{i}.jpg", ("item", f"class {i % N_LABELS}")) for i in ids]
            index.add(ids, codes, metadata)
    return folder


if __name__ == "__main__":
    sys.exit(main())
