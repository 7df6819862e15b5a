"""How many threads a kernel is worth."""

from collections.abc import Iterator
from contextlib import contextmanager

from numba import get_num_threads, set_num_threads

SMALL = 1 << 14  # pairs of images: below, waking threads takes longer than the work


@contextmanager
def threads_for(pairs: int) -> Iterator[None]:
    """One thread for small batches, all of them for others."""
    before = get_num_threads()
    set_num_threads(1 if pairs < SMALL else before)
    try:
        yield
    finally:
        set_num_threads(before)
