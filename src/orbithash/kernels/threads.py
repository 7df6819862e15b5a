"""How many threads a kernel is worth, and how work is shared out among them."""

from collections.abc import Iterator
from contextlib import contextmanager

from numba import get_num_threads, set_num_threads

SMALL = 1 << 14  # pairs of images: below, waking threads takes longer than the work
SMALL_PART = 1 << 16  # codes: a part of the database that is worth a thread of its own


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
