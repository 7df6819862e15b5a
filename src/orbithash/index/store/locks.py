"""Locks between processes: of writers, and of those who make or remove segments.

They are files in the index's folder, locked with `flock`: a lock ends with its process.
"""

import fcntl
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from orbithash.errors import StorageError

WRITERS = "writers.lock"
SEGMENTS = "segments.lock"
WAIT = 60.0  # seconds for another process's transaction to end
MAX_PAUSE = 0.05


def has_reset_fault(version: tuple[int, ...]) -> bool:
    """Return whether this SQLite may lose a transaction when its write-ahead log is reset.

    Two connections that write or checkpoint at the same time can meet it. It was fixed in 3.51.3,
    and in the patched versions 3.50.7 and 3.44.6.

    >>> has_reset_fault((3, 40, 1)), has_reset_fault((3, 50, 7)), has_reset_fault((3, 51, 3))
    (True, False, False)
    """
    if version >= (3, 51):
        return version < (3, 51, 3)
    return not any(branch <= version < (3, branch[1] + 1) for branch in ((3, 50, 7), (3, 44, 6)))


NEEDS_LOCK = has_reset_fault(sqlite3.sqlite_version_info)


@contextmanager
def one_writer(folder: Path) -> Iterator[None]:
    """Let one connection at a time write or checkpoint, where SQLite itself may fail at it."""
    if not NEEDS_LOCK:
        yield
        return
    with locked(folder, WRITERS, wait=WAIT) as is_ours:
        if not is_ours:
            raise busy(folder)
        yield


@contextmanager
def locked(folder: Path, name: str, *, wait: float) -> Iterator[bool]:
    """Hold a lock; yield False if others have held it for longer than `wait` seconds."""
    try:
        file = (folder / name).open("a")
    except OSError as error:
        raise StorageError(
            f"cannot write {folder / name}: {error.strerror}; nothing of this was stored: check "
            "its permissions, or free some space"
        ) from error
    with file:
        yield is_locked(file, time.monotonic() + wait)


def is_locked(file: TextIO, deadline: float) -> bool:
    """Lock a file; return False if others hold it beyond the deadline."""
    pause = 0.001
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE)


def busy(folder: Path) -> StorageError:
    return StorageError(
        f"another process has been writing to {folder} for {WAIT:.0f} s; nothing of this was "
        "stored, and all earlier items are unchanged: try again"
    )
