"""Kernels are compiled once for all test processes: the others wait, and load the result."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

compile_or_load = Dispatcher.compile


def share_compilation() -> None:
    """Let this process wait for a kernel that another one compiles at this moment."""
    Dispatcher.compile = compile_in_turn


def compile_in_turn(kernel: Dispatcher, signature: object) -> object:
    if kernel.stats.cache_path is None:  # nothing that other processes could load
        return compile_or_load(kernel, signature)
    # Numba's own lock comes first, so that a thread that waits for a file holds both. Between
    # processes nothing waits in a circle: a kernel is locked before those that it calls.
    with global_compiler_lock, locked(lock_file(kernel)):
        return compile_or_load(kernel, signature)


def lock_file(kernel: Dispatcher) -> Path:
    folder, function = Path(kernel.stats.cache_path), kernel.py_func
    return folder / f"{function.__module__}.{function.__qualname__}.lock"


@contextmanager
def locked(file: Path) -> Iterator[None]:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        try:
            yield
        finally:  # now, even if a forked process has the file open
            fcntl.flock(opened, fcntl.LOCK_UN)
