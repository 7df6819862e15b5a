"""Indexes whose codes are sealed early, and a process that changes one until it is killed."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np

from orbithash.index import Metadata, open_index
from orbithash.index.store import changes, sealing

N_BITS, BATCH = 40, 300
IN_FILES = ("write", "flush", "fsync", "replace", "rename", "unlink", "open")


@contextmanager
def sealing_early(*, seal_at: int = 500, tier: int = 3, many: int = 10**6) -> Iterator[None]:
    """Seal and merge a few hundred codes as otherwise hundreds of thousands are."""
    with (
        mock.patch.object(sealing, "SEAL_AT", seal_at),
        mock.patch.object(sealing, "TIER", tier),
        mock.patch.object(sealing, "MERGED", 128),
        mock.patch.object(changes, "MANY_CODES", many),
    ):
        yield


def batch_codes(batch: int) -> np.ndarray:
    return np.random.default_rng(batch).integers(0, 256, (BATCH, N_BITS // 8), dtype=np.uint8)


def batch_ids(batch: int) -> np.ndarray:
    return np.arange(batch * BATCH, (batch + 1) * BATCH)


def batch_metadata(batch: int) -> list[Metadata] | None:
    """Every third batch has none."""
    if batch % 3 == 0:
        return None
    return [Metadata(f"{batch}/{i}.jpg", (f"class {i % 7}",), "photos") for i in range(BATCH)]


def removed_ids(batch: int) -> np.ndarray:
    """What is removed after a batch was added: some of the one before."""
    return batch_ids(batch - 1)[::50] if batch and batch % 2 == 0 else np.empty(0, dtype=np.int64)


def change(address: str, log: Path, first: int, killed_at: int = 0) -> None:
    """Add batches from number `first` on, remove, seal and compact; log what has returned.

    The process kills itself before its `killed_at`-th call of SQLite or of a file, unless that is
    0. Sealing runs in the same thread, so that the moment does not depend on the machine.
    """
    in_this_thread = mock.patch.object(changes.threading, "Thread", CallsAtOnce)
    with (
        sealing_early(many=BATCH),
        in_this_thread,
        open_index(address) as index,
    ):
        if killed_at:
            sys.setprofile(kill_at(killed_at))
        for batch in range(first, first + 100):
            index.update(batch_ids(batch), batch_codes(batch), batch_metadata(batch))
            report(log, f"added {batch}")
            index.remove(removed_ids(batch))
            report(log, f"removed {batch}")
            if batch % 4 == 3:
                index.compact()


class CallsAtOnce:
    """A thread that does its work when it is started."""

    def __init__(self, target: Callable[..., None], args: tuple[object, ...], name: str) -> None:
        self.start = lambda: target(*args)

    def is_alive(self) -> bool:
        return False

    def join(self) -> None:
        pass


def report(log: Path, line: str) -> None:
    with log.open("a") as file:
        file.write(f"{line}\n")


def kill_at(n_calls: int) -> Callable[..., None]:
    def count(frame: object, event: str, argument: object) -> None:
        nonlocal n_calls
        if event != "c_call":
            return
        owner = type(getattr(argument, "__self__", None))
        if owner.__module__ == "sqlite3" or argument.__name__ in IN_FILES:
            n_calls -= 1
            if n_calls == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return count


def reported(log: Path, what: str) -> set[int]:
    """Return the numbers of the batches that were added or removed from."""
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    return {int(line.split()[1]) for line in lines if line.startswith(what)}
