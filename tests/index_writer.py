"""A process that adds to an index until it is killed, and logs every batch that was stored."""

import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from orbithash.index import Metadata, open_index

BATCH, N_BITS = 300, 40
SQLITE = (sqlite3.Connection, sqlite3.Cursor)


def batch_codes(batch: int) -> np.ndarray:
    return np.random.default_rng(batch).integers(0, 256, (BATCH, N_BITS // 8), dtype=np.uint8)


def batch_metadata(batch: int) -> list[Metadata]:
    return [
        Metadata(f"{batch}/{row}.jpg", (f"class {row % 7}",), "photos", fields={"batch": batch})
        for row in range(BATCH)
    ]


def write(address: str, log: Path, first: int, killed_at: int = 0) -> None:
    """Add batches from number `first` on; every fifth batch also replaces the one before.

    Batch b has the ids from b * BATCH on. The process kills itself before its `killed_at`-th call
    of sqlite3, unless that is 0.
    """
    with open_index(address) as index, log.open("a") as opened:
        batch = first
        if killed_at:
            sys.setprofile(kill_at(killed_at))
        while True:
            ids = np.arange(batch * BATCH, (batch + 1) * BATCH)
            if batch % 5 == 4:
                index.update(ids - BATCH, batch_codes(batch - 1), batch_metadata(batch - 1))
            index.update(ids, batch_codes(batch), batch_metadata(batch))
            opened.write(f"{batch}\n")
            opened.flush()
            batch += 1


def write_told(address: str, log: str, first: int) -> None:
    """Do what `write` does, in a process that something else disturbs."""
    write(address, Path(log), first)


def kill_at(n_calls: int) -> Callable[..., None]:
    def count(frame: object, event: str, argument: object) -> None:
        nonlocal n_calls
        if event == "c_call" and type(getattr(argument, "__self__", None)) in SQLITE:
            n_calls -= 1
            if n_calls == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return count


def last_stored_batch(log: Path) -> int:
    """Return the number of the last batch in the log, without an unfinished line; -1 if none."""
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    return int(lines[-1]) if lines else -1


def wait_for(condition, writer) -> None:
    deadline = time.monotonic() + 600
    while not condition():
        assert writer.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.002)
