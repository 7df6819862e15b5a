"""Indexes whose codes are sealed early, and a process that changes one until it is killed."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np

from orbithash.index import ExactIndex, Index, Metadata, open_index
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


def change(address: str, log: Path, first: int, killed_at: int = 0, n_batches: int = 100) -> None:
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
        for batch in range(first, first + n_batches):
            index.update(batch_ids(batch), batch_codes(batch), batch_metadata(batch))
            report(log, f"added {batch}")
            index.remove(removed_ids(batch))
            report(log, f"removed {batch}")
            if batch % 4 == 3:
                index.compact()


def change_told(address: str, log: str, first: int, n_batches: int = 100) -> None:
    """Do what `change` does, in a process that something else disturbs."""
    change(address, Path(log), first, n_batches=n_batches)


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


def assert_nothing_lost(index: Index, told: Path, before: int) -> int:
    """Check all batches that were reported, and that another is there as a whole or not at all."""
    stored = {}
    for items in index.iterate(4096):
        for i, code, note in zip(items.ids.tolist(), items.codes, items.metadata, strict=True):
            stored[i] = (code.tobytes(), note)
    added, removed = max(reported(told, "added"), default=-1), reported(told, "removed")
    n_batches = max(stored, default=-1) // BATCH + 1
    assert added + 1 <= n_batches <= max(added + 1, before) + 1
    expected, codes = {}, []
    for batch in range(n_batches):
        notes = batch_metadata(batch) or [Metadata()] * BATCH
        for i, code, note in zip(batch_ids(batch).tolist(), batch_codes(batch), notes, strict=True):
            expected[i] = (code.tobytes(), note)
    for batch in range(n_batches):
        gone = removed_ids(batch).tolist()
        is_gone = [i not in stored for i in gone]
        assert all(is_gone) if batch in removed else len(set(is_gone)) < 2
        for i in gone if gone and is_gone[0] else ():
            del expected[i]
    assert stored == expected
    if not expected:
        return n_batches
    codes = np.frombuffer(b"".join(code for code, _ in expected.values()), dtype=np.uint8)
    reference = ExactIndex(N_BITS)
    reference.add(np.array(list(expected), dtype=np.int64), codes.reshape(len(expected), -1))
    queries = batch_codes(0)[:3]
    np.testing.assert_array_equal(index.search(queries, 9).ids, reference.search(queries, 9).ids)
    return n_batches
