"""How the items of a source are known elsewhere: by the source's name, a path and a stamp."""

import hashlib
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from orbithash.data import ImageFiles, ImageSource
from orbithash.encoders.encoder import Data
from orbithash.errors import InputError
from orbithash.files import absolute_name


@dataclass(frozen=True, eq=False)
class Origin:
    """Where encoded items are from, so that an index knows them as if it had read the source."""

    source: str  # its name, the same from any working directory
    root: str  # of relative paths; "" if the paths are names
    stamps: dict[int, str]  # state of an item before it was encoded, by row


def origin_of(data: Data, source: str, rows: Int64[np.ndarray, " n"]) -> Origin:
    """Return the origin of some rows; call it before they are encoded, as files may change."""
    root = absolute_name(data.root) if isinstance(data, ImageFiles) else ""
    return Origin(source, root, {row: item_stamp(data, row) for row in rows.tolist()})


def item_stamp(data: Data, row: int) -> str:
    """Return a text that differs when the item has changed; "missing" if it is not there."""
    if isinstance(data, ImageSource):
        return data.stamp(row)
    return hashlib.blake2b(data.features[row].tobytes(), digest_size=8).hexdigest()


def item_paths(data: Data) -> list[str]:
    """Return the file of each item, or its name in the source."""
    if isinstance(data, ImageFiles):
        return [absolute_name(data.root / path) for path in data.paths]
    return list(data.paths or (f"row {row}" for row in range(len(data))))


def shard_rows(n_items: int, number: int, n_shards: int) -> Int64[np.ndarray, " rows"]:
    """Return the rows of a shard; shards are numbered from 1, and cover all rows in order.

    >>> shard_rows(10, 2, 3)
    array([3, 4, 5])
    """
    if not 1 <= number <= n_shards:
        raise InputError(
            f"got shard {number}/{n_shards}; give 1/{n_shards} to {n_shards}/{n_shards}"
        )
    rows = np.arange(n_items * (number - 1) // n_shards, n_items * number // n_shards)
    if not len(rows):
        raise InputError(
            f"shard {number}/{n_shards} of {n_items} items is empty; make at most {n_items} shards"
        )
    return rows
