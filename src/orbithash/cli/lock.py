"""One process at a time in a folder."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orbithash.errors import InputError

LOCK = ".lock"  # the file's name; it may be left by a process that was killed


@contextmanager
def only_process_in(folder: Path) -> Iterator[None]:
    """Hold the folder, or raise if another process does.

    The lock goes with the process, however it ends. Workers that it has forked do not hold it:
    they may live a moment longer.
    """
    file = folder / LOCK
    with file.open("a") as opened:
        try:
            fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had the folder may have renamed or removed it between the two lines.
            ours = os.path.samestat(os.fstat(opened.fileno()), file.stat())
        except OSError:
            ours = False
        if not ours:
            raise InputError(
                f"another process is writing to {folder}; wait for it, or give --out another name"
            )
        yield
