"""Threads of the compiled loops: compilation, number of threads, and how work is split.

Three rules decide how a loop uses threads:

- waiting threads sleep: `orbithash.kernels` sets OMP_WAIT_POLICY before OpenMP is loaded;
- loops of `parallel_njit` use all threads, one loop at a time where numba has no OpenMP;
- `threads_for` restricts small batches to one thread.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from numba import (  # type: ignore[attr-defined]
    get_num_threads,
    njit,
    set_num_threads,
    threading_layer,
)

MIN_PARALLEL_PAIRS = 1 << 14  # below, starting threads takes longer than the work
MIN_PART_CODES = 1 << 16  # a smaller part of the database is not worth a thread

_one_loop = threading.Lock()


def parallel_njit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a parallel loop that several Python threads may call at the same time.

    Where numba finds no OpenMP it uses its "workqueue" layer, which ends the process if two threads
    start loops concurrently; calls are then serialised by a lock. The compiled function is
    `__wrapped__`.
    """
    compiled = njit(cache=True, parallel=True, nogil=True)(function)

    @wraps(compiled, updated=())
    def run_compiled(*arguments: Any) -> Any:
        if not _needs_lock():
            return compiled(*arguments)
        with _one_loop:
            return compiled(*arguments)

    return run_compiled


@contextmanager
def threads_for(n_pairs: int) -> Iterator[None]:
    """Use one thread for small batches and all threads for larger ones."""
    n_threads = get_num_threads()
    set_num_threads(1 if n_pairs < MIN_PARALLEL_PAIRS else n_threads)
    try:
        yield
    finally:
        set_num_threads(n_threads)


def queries_per_task(n_queries: int, max_queries: int) -> int:
    """Return how many queries share a pass over the database, so that every thread has some."""
    return max(1, min(max_queries, -(-n_queries // get_num_threads())))


def database_parts(n_tasks: int, n_codes: int) -> int:
    """Return the number of parts of the database, so that few queries still use all threads."""
    return max(1, min(-(-get_num_threads() // max(1, n_tasks)), n_codes // MIN_PART_CODES))


def _needs_lock() -> bool:
    try:
        return bool(threading_layer() == "workqueue")
    except ValueError:  # unknown until the first loop has run
        return True
