"""One number of threads for a whole run."""

from collections.abc import Iterator
from contextlib import contextmanager

import numba
import torch


@contextmanager
def steady_threads() -> Iterator[None]:
    """Let torch and the compiled kernels have the same number of threads, throughout.

    Both may share one OpenMP, and then the number that a kernel ran with becomes torch's from
    there on. Sums are rounded by how many threads share them, so a run that goes on in a new
    process would differ from one that never stopped.
    """
    before, kernels_before = torch.get_num_threads(), numba.get_num_threads()
    number = min(before, numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    numba.set_num_threads(number)
    torch.set_num_threads(number)
    try:
        yield
    finally:
        numba.set_num_threads(kernels_before)
        torch.set_num_threads(before)
