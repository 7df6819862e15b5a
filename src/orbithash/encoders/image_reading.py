"""Image files through a network, batch by batch, read ahead by threads."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from typing import TypeVar

import numpy as np
from jaxtyping import UInt8

from orbithash.encoders.extraction.feature_cache import Shard
from orbithash.encoders.runtime import Describe
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


Pixels = UInt8[np.ndarray, "side side 3"]


def describe_files(
    items: Iterable[Item],
    read: Callable[[Item], Pixels],
    describe: Describe,
    *,
    n_features: int,
    batch_sizes: list[int],
) -> Generator[Shard, None, None]:
    """What a network makes of all that `read` reads, in batches of the given sizes, in order.

    Files are decoded in threads while the network works.
    """
    contents = read_ahead(
        items,
        read,
        n_threads=min(8, os.cpu_count() or 1),
        n_ahead=4 * max(batch_sizes, default=1),
    )
    with closing(contents):
        for size in batch_sizes:
            yield described(list(islice(contents, size)), describe, n_features=n_features)


def described(
    batch: list[Pixels | UnreadableImageError], describe: Describe, *, n_features: int
) -> Shard:
    pixels = [item for item in batch if isinstance(item, np.ndarray)]
    return Shard(
        features=describe(np.stack(pixels)) if pixels else np.empty((0, n_features), np.float32),
        readable=np.array([isinstance(item, np.ndarray) for item in batch]),
        reasons=tuple(item.reason for item in batch if isinstance(item, UnreadableImageError)),
    )
