"""Reading in the background, a little ahead of whoever needs them."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from orbithash.errors import UnreadableImageError

Item = TypeVar("Item")
Content = TypeVar("Content")


def read_ahead(
    items: Iterable[Item], read: Callable[[Item], Content], *, n_threads: int, n_ahead: int
) -> Generator[Content | UnreadableImageError, None, None]:
    """What `read` makes of each item, in order; for one that it cannot read, the error.

    At most `n_ahead` results wait in memory. Threads suffice for images, because their decoders
    work outside of Python's lock.
    """

    def attempt(item: Item) -> Content | UnreadableImageError:
        try:
            return read(item)
        except UnreadableImageError as error:
            return error

    waiting: deque[Future[Content | UnreadableImageError]] = deque()
    pool = ThreadPoolExecutor(n_threads, thread_name_prefix="read-ahead")
    try:
        for item in items:
            waiting.append(pool.submit(attempt, item))
            if len(waiting) > n_ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
