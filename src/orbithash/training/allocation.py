"""Memory that a step has used is kept for the next one."""

import ctypes

# Of glibc's mallopt.
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4


def keep_freed_memory() -> bool:
    """Let this process keep what it frees; False where the C library is another than glibc.

    A training step on a processor takes and frees gigabytes. By default each large piece goes back
    to the system and comes anew in the next step, page by page and filled with zeros, which takes a
    quarter of the time (GoogLeNet, two cores). It holds for the whole process, so it is called by
    programs, not by the library.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    largest = 2**31 - 1
    settings = ((MMAP_MAX, 0), (TRIM_THRESHOLD, largest), (TOP_PAD, 64 * 2**20))
    return all(mallopt(name, value) == 1 for name, value in settings)
