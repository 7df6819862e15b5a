"""Images through a network, batch by batch, read ahead by threads."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Float, UInt8

from orbithash.encoders.runtime import Runtime
from orbithash.errors import UnreadableImageError

Item = TypeVar("Item")
Content = TypeVar("Content")
Pixels = UInt8[np.ndarray, "side side 3"]


@dataclass(frozen=True, eq=False)
class NetworkOutputs:
    """Outputs for the images of a batch that could be read, and the reason for each other one."""

    features: Float[np.ndarray, "readable d"]
    readable: Bool[np.ndarray, " n"]
    reasons: tuple[str, ...]


def read_through_network(
    items: Iterable[Item],
    read: Callable[[Item], Pixels],
    run: Runtime,
    *,
    n_features: int,
    batch_sizes: list[int],
) -> Generator[NetworkOutputs, None, None]:
    """Yield the network's outputs for all items, in batches of the given sizes, in order.

    Threads decode images while the network runs.
    """
    contents = read_ahead(
        items,
        read,
        n_threads=min(8, os.cpu_count() or 1),
        n_ahead=4 * max(batch_sizes, default=1),
    )
    with closing(contents):
        for size in batch_sizes:
            batch = list(islice(contents, size))
            pixels = [item for item in batch if isinstance(item, np.ndarray)]
            errors = [item for item in batch if isinstance(item, UnreadableImageError)]
            yield NetworkOutputs(
                features=run(np.stack(pixels)) if pixels else np.empty((0, n_features), np.float32),
                readable=np.array([isinstance(item, np.ndarray) for item in batch]),
                reasons=tuple(error.reason for error in errors),
            )


def read_ahead(
    items: Iterable[Item], read: Callable[[Item], Content], *, n_threads: int, n_ahead: int
) -> Generator[Content | UnreadableImageError, None, None]:
    """Yield the content of each item, in order; for an unreadable one, the error.

    At most `n_ahead` results wait in memory. Threads are enough, because image decoders release
    Python's lock.
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
