"""An hour of mixed load on a served index of a million codes: memory, latency, errors, losses.

Clients send searches (by id, by code, by image), additions of codes, uploads of images and removals
at a fixed rate, each on its own connection. Latency counts from the moment at which a request was
due, so that a server that stalls cannot hide it. The server's memory, open files and log are
read every ten seconds. In the end the server is stopped, and the index must hold exactly what was
acknowledged.

Usage: soak.py [SECONDS] [REPORT] [REQUESTS PER SECOND]; default: 3600 seconds, soak.json, 20 per
second. The report is also written every minute, and by Ctrl-C.
"""

import os

# Waiting threads must sleep, because clients and server share the cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import http.client
import io
import json
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import torch
from PIL import Image

from measure import at_most
from orbithash.encoders import ImageEncoder
from orbithash.encoders.runs.model_file import encoder_to_bytes
from orbithash.files import whole_file
from orbithash.index import Metadata, create_index, open_index
from orbithash.index.addresses import open_folder
from orbithash.networks import HashingNetwork, load_photo_backbone

N_CODES, N_BITS, K = 1_000_000, 64, 10
N_CLIENTS, N_ADDED, N_CLASSES = 4, 64, 200
SHARES = {
    "search by id": 0.40,
    "search by code": 0.20,
    "search by image": 0.10,
    "add 64 codes": 0.12,
    "upload an image": 0.06,
    "remove an item": 0.12,
}
PARTS = 6  # of the time, each with figures of its own
SAMPLE_SECONDS, WRITE_SECONDS = 10.0, 60.0
MULTIPART = "--b\r\nContent-Disposition: form-data; name=image; filename=a.png\r\n\r\n"


@dataclass
class Record:
    """What happened so far; threads append to it under its lock."""

    seconds: float
    started: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)
    latencies: dict[str, list[tuple[float, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    errors: Counter[str] = field(default_factory=Counter)
    samples: list[dict[str, float]] = field(default_factory=list)
    added: dict[int, str] = field(default_factory=dict)  # code by id; "" of an image
    removed: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)  # removals without an answer

    def elapsed(self) -> float:
        return time.monotonic() - self.started


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3600.0
    report = Path(sys.argv[2] if len(sys.argv) > 2 else "soak.json")
    rate = float(sys.argv[3]) if len(sys.argv) > 3 else 20.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        index = random_index(folder / "codes.orbit")
        with server(index, folder) as (process, address, key):
            record = Record(seconds)
            warm_up(record, address, key)
            try:
                soak(record, process, address, key, index, folder, rate, report)
            except KeyboardInterrupt:
                print("Stopped early.")
            content = summary(record, rate) | {"exit code": stop(process)}
        content |= losses(index, record)
        write(report, content)
        return show(content)


def soak(
    record: Record,
    process: subprocess.Popen[str],
    address: str,
    key: str,
    index: Path,
    folder: Path,
    rate: float,
    report: Path,
) -> None:
    """Run the clients until the time is over, and sample the server meanwhile."""
    ended = threading.Event()
    clients = [
        threading.Thread(target=client, args=(number, record, address, key, rate, ended))
        for number in range(N_CLIENTS)
    ]
    for thread in clients:
        thread.start()
    written = 0.0
    try:
        while record.elapsed() < record.seconds and process.poll() is None:
            ended.wait(min(SAMPLE_SECONDS, max(record.seconds - record.elapsed(), 0.1)))
            with record.lock:
                record.samples.append({"at": record.elapsed()} | sample(process.pid, index, folder))
            if record.elapsed() - written >= WRITE_SECONDS:
                written = record.elapsed()
                write(report, summary(record, rate))
    finally:
        ended.set()
        for thread in clients:
            thread.join()


def warm_up(record: Record, address: str, key: str) -> None:
    """Send a request of each kind, and start the clock: the first ones wait for compilers."""
    url = urlsplit(address)
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=300)
    for request in REQUESTS.values():
        assert not request(Sender(connection, key), random.Random(0), record)
    connection.close()
    record.started = time.monotonic()


def client(
    number: int, record: Record, address: str, key: str, rate: float, ended: threading.Event
) -> None:
    """Send a request whenever one is due; a request that comes late is sent at once."""
    url = urlsplit(address)
    rng = random.Random(number)
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=60)
    kinds, weights = list(SHARES), list(SHARES.values())
    due = number * 1 / rate
    while not ended.wait(max(due - record.elapsed(), 0.0)):
        kind = rng.choices(kinds, weights)[0]
        try:
            problem = REQUESTS[kind](Sender(connection, key), rng, record)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            problem = type(error).__name__
        with record.lock:
            record.latencies[kind].append((due, record.elapsed() - due))
            if problem:
                record.errors[f"{kind}: {problem}"] += 1
        due += N_CLIENTS / rate
    connection.close()


@dataclass(frozen=True)
class Sender:
    """A connection to the server, with the key."""

    connection: http.client.HTTPConnection
    key: str

    def __call__(
        self, method: str, path: str, body: bytes = b"", kind: str = "application/json"
    ) -> tuple[int, Any]:
        """Send a request; return the status and the JSON of the response."""
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": kind}
        self.connection.request(method, f"/api/v1{path}", body, headers)
        response = self.connection.getresponse()
        content = response.read()
        return response.status, json.loads(content) if content else None


def search_by_id(send: Sender, rng: random.Random, record: Record) -> str:
    status, found = send("POST", "/search", as_json({"id": rng.randrange(N_CODES), "k": K}))
    if status == 404:  # the item may be removed
        return ""
    return problem_of(status, 200) or ("" if len(found["hits"]) == K else "too few hits")


def search_by_code(send: Sender, rng: random.Random, record: Record) -> str:
    """Search a code that was just added: the item itself must be found, unless it is removed."""
    with record.lock:
        recent = list(record.added)[-1000:]
        identifier = rng.choice(recent) if recent else -1
        code = record.added.get(identifier, "")
        is_removed = identifier in record.removed | record.unknown
    sought = {"code": code or secrets.token_hex(N_BITS // 8), "k": K}
    status, found = send("POST", "/search", as_json(sought))
    if problem := problem_of(status, 200):
        return problem
    missing = code and not is_removed and found["hits"][0]["distance"] != 0
    with record.lock:  # another client may have removed it meanwhile
        return "an added item is not found" if missing and identifier not in record.removed else ""


def search_by_image(send: Sender, rng: random.Random, record: Record) -> str:
    status, found = send("POST", "/search/image", *upload(rng))
    return problem_of(status, 200) or ("" if len(found["hits"]) == K else "too few hits")


def add_codes(send: Sender, rng: random.Random, record: Record) -> str:
    codes = [rng.randbytes(N_BITS // 8).hex() for _ in range(N_ADDED)]
    items = [{"code": code, "labels": [f"class {rng.randrange(N_CLASSES)}"]} for code in codes]
    status, added = send("POST", "/items", as_json({"items": items}))
    if problem := problem_of(status, 201):
        return problem
    with record.lock:
        record.added |= dict(zip(map(int, added["ids"]), codes, strict=True))
    return ""


def upload_image(send: Sender, rng: random.Random, record: Record) -> str:
    status, added = send("POST", "/items/image", *upload(rng))
    if problem := problem_of(status, 201):
        return problem
    with record.lock:
        record.added |= dict.fromkeys(map(int, added["ids"]), "")
    return ""


def remove_item(send: Sender, rng: random.Random, record: Record) -> str:
    """Remove an item of the first million, or one that was added since."""
    with record.lock:
        added = list(record.added)[-10_000:]
        new = added and rng.random() < 0.5
        identifier = rng.choice(added) if new else rng.randrange(N_CODES)
        if identifier in record.removed | record.unknown:
            return ""
        record.unknown.add(identifier)
    status, _ = send("DELETE", f"/items/{identifier}")
    if problem := problem_of(status, 204):
        return problem
    with record.lock:
        record.unknown.discard(identifier)
        record.removed.add(identifier)
    return ""


REQUESTS: dict[str, Callable[[Sender, random.Random, Record], str]] = {
    "search by id": search_by_id,
    "search by code": search_by_code,
    "search by image": search_by_image,
    "add 64 codes": add_codes,
    "upload an image": upload_image,
    "remove an item": remove_item,
}


def problem_of(status: int, expected: int) -> str:
    return "" if status == expected else f"status {status}"


def as_json(content: Any) -> bytes:
    return json.dumps(content).encode()


def upload(rng: random.Random) -> tuple[bytes, str]:
    """Return a form with a picture of random colours, and its media type."""
    pixels = np.frombuffer(rng.randbytes(8 * 8 * 3), dtype=np.uint8).reshape(8, 8, 3)
    image = io.BytesIO()
    Image.fromarray(pixels).resize((160, 120)).save(image, format="PNG")
    body = MULTIPART.encode() + image.getvalue() + b"\r\n--b--\r\n"
    return body, "multipart/form-data; boundary=b"


def sample(pid: int, index: Path, folder: Path) -> dict[str, float]:
    """Return memory and open files of the server, and the sizes of its index and its log."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        opened = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    except OSError:  # it has ended
        return {}
    kilobytes = {
        line.split(":")[0]: line.split()[1] for line in status.splitlines() if "kB" in line
    }
    return {
        "own MB": int(kilobytes["RssAnon"]) / 1e3,
        "mapped MB": int(kilobytes["RssFile"]) / 1e3,
        "threads": int(status.partition("Threads:")[2].split()[0]),
        "open files": opened,
        "CPU seconds": sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"),
        "index MB": sum(file.stat().st_size for file in index.iterdir()) / 1e6,
        "log lines": (folder / "log").read_text().count("\n"),
    }


def summary(record: Record, rate: float) -> dict[str, Any]:
    with record.lock:
        length = max(record.elapsed() / PARTS, 1.0)
        return {
            "codes": N_CODES,
            "bits": N_BITS,
            "seconds": round(record.elapsed()),
            "requests per second": rate,
            "errors": dict(record.errors),
            "added": len(record.added),
            "removed": len(record.removed),
            "requests": {kind: figures(times, length) for kind, times in record.latencies.items()},
            "server": server_figures(record.samples, length),
        }


def figures(times: list[tuple[float, float]], length: float) -> dict[str, Any]:
    """Return the latencies of a kind of request in milliseconds, and those of each part."""
    everything = np.array([latency for _, latency in times])
    parts = [
        [latency for due, latency in times if part <= due / length < part + 1]
        for part in range(PARTS)
    ]
    return {
        "count": len(times),
        **percentiles(everything),
        "p99 by part": [percentiles(np.array(part))["p99"] for part in parts if part],
    }


def percentiles(latencies: np.ndarray) -> dict[str, float]:
    p50, p99, worst = 1e3 * np.percentile(latencies, [50, 99, 100])
    return {"p50": round(p50, 1), "p99": round(p99, 1), "max": round(worst, 1)}


def server_figures(samples: list[dict[str, float]], length: float) -> dict[str, list[float]]:
    """Return the mean of each figure of the server in each part; of growing ones, the last."""
    complete = [each for each in samples if len(each) > 1]
    parts = [
        [each for each in complete if part <= each["at"] / length < part + 1]
        for part in range(PARTS)
    ]
    names = [name for name in (complete[0] if complete else {}) if name != "at"]
    return {
        name: [round(float(np.mean([each[name] for each in part])), 1) for part in parts if part]
        for name in names
    }


def losses(index: Path, record: Record) -> dict[str, Any]:
    """Compare the index with what was acknowledged, and verify all of it."""
    with open_folder(index, "the soak") as opened:
        stored = np.concatenate([items.ids for items in opened.iterate(1 << 16)])
        problems = opened.check()
    expected = (set(range(N_CODES)) | set(record.added)) - record.removed - record.unknown
    found = set(stored.tolist())
    return {
        "acknowledged additions that are lost": len(expected - found),
        "removed items that came back": len(record.removed & found),
        "problems that --check finds": problems,
    }


def show(content: Mapping[str, Any]) -> int:
    print(f"{content['seconds']} s at {content['requests per second']:g} requests per second")
    for kind, row in content["requests"].items():
        print(f"  {kind:<16} {row['count']:>7}  p50 {row['p50']} ms  p99 {row['p99']} ms")
    for name, values in content["server"].items():
        print(f"  {name:<16} {values}")
    print(f"  added {content['added']}, removed {content['removed']}; errors {content['errors']}")
    own = content["server"]["own MB"]
    passed = at_most("requests that failed", sum(content["errors"].values()), 0)
    passed &= at_most("additions lost", content["acknowledged additions that are lost"], 0)
    passed &= at_most("removals lost", content["removed items that came back"], 0)
    passed &= at_most("problems in the index", len(content["problems that --check finds"]), 0)
    passed &= at_most(
        "times the memory of the second part", own[-1] / own[min(1, len(own) - 1)], 1.2
    )
    passed &= at_most("exit code of the server", content["exit code"], 0)
    return 0 if passed else 1


def write(report: Path, content: Mapping[str, Any]) -> None:
    with whole_file(report) as file:
        file.write(json.dumps(content, indent=2).encode() + b"\n")


@contextmanager
def server(index: Path, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """Start a server that may be written to; yield its process, its address and its key."""
    key = secrets.token_urlsafe()
    command = [sys.executable, "-m", "orbithash", "serve", str(index), "--port", "0"]
    options = ["--rate", "0", "--uploads", str(folder / "uploads")]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, *options],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=os.environ | {"ORBITHASH_KEY": key},
        )
        try:
            assert process.stdout is not None
            yield process, next(line.strip() for line in process.stdout if "http" in line), key
        finally:
            stop(process)


def stop(process: subprocess.Popen[str]) -> int:
    """Stop the server as Ctrl-C does; return its exit code."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    return process.wait(timeout=120)


def random_index(folder: Path) -> Path:
    """Create an index of random codes, with an encoder that was not trained."""
    torch.manual_seed(0)
    network = HashingNetwork(load_photo_backbone("small-cnn", to_train=True), N_BITS)
    encoder = ImageEncoder(network.backbone.eval(), network.head.eval())
    rng = np.random.default_rng(0)
    with create_index(folder, N_BITS, encoder=encoder_to_bytes(encoder)) as index:
        for start in range(0, N_CODES, 100_000):
            ids = np.arange(start, start + 100_000)
            codes = rng.integers(0, 256, (len(ids), N_BITS // 8), dtype=np.uint8)
            metadata = [Metadata(f"/photos/{i}.jpg", (f"class {i % N_CLASSES}",)) for i in ids]
            index.add(ids, codes, metadata)
    with open_index(folder) as index:  # sealed by now
        assert len(index) == N_CODES
    return folder


if __name__ == "__main__":
    sys.exit(main())
