"""Reading files in the background, a little ahead of whoever needs them."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from orbithash.errors import UnreadableImageError

Content = TypeVar("Content")


def read_ahead(
    files: Iterable[Path], read: Callable[[Path], Content], *, n_threads: int, n_ahead: int
) -> Generator[Content | UnreadableImageError, None, None]:
    """What `read` makes of each file, in order; for a file that it cannot read, the error.

    At most `n_ahead` results wait in memory. Threads suffice for images, because their decoders
    work outside of Python's lock.
    """

    def attempt(file: Path) -> Content | UnreadableImageError:
        try:
            return read(file)
        except UnreadableImageError as error:
            return error

    waiting: deque[Future[Content | UnreadableImageError]] = deque()
    pool = ThreadPoolExecutor(n_threads, thread_name_prefix="read-ahead")
    try:
        for file in files:
            waiting.append(pool.submit(attempt, file))
            if len(waiting) > n_ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
