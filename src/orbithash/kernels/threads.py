"""How many threads a kernel is worth, and how work is shared out among them."""

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

SMALL = 1 << 14  # pairs of images: below, waking threads takes longer than the work
SMALL_PART = 1 << 16  # codes: a part of the database that is worth a thread of its own


turn = threading.Lock()


def parallel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a loop for all cores, so that any thread may start it at any time.

    Where numba finds no OpenMP it falls back to a layer that ends the process if two threads start
    loops at once. With that layer they take turns. What numba compiled is `__wrapped__`.
    """
    compiled = njit(cache=True, parallel=True, nogil=True)(function)

    @wraps(compiled, updated=())
    def started(*arguments: Any) -> Any:
        if not takes_turns():
            return compiled(*arguments)
        with turn:
            return compiled(*arguments)

    return started


def takes_turns() -> bool:
    try:
        return bool(threading_layer() == "workqueue")
    except ValueError:  # it is chosen when the first loop starts
        return True


@contextmanager
def threads_for(pairs: int) -> Iterator[None]:
    """One thread for small batches, all of them for others."""
    before = get_num_threads()
    set_num_threads(1 if pairs < SMALL else before)
    try:
        yield
    finally:
        set_num_threads(before)


def queries_per_task(n_queries: int, most: int) -> int:
    """How many queries go through the database together, so that each thread has some to do."""
    return max(1, min(most, -(-n_queries // get_num_threads())))


def database_parts(n_tasks: int, n_codes: int) -> int:
    """Into how many parts the database is cut, so that few queries have work for all threads."""
    return max(1, min(-(-get_num_threads() // max(1, n_tasks)), n_codes // SMALL_PART))
