"""Encode on a Ray cluster whose workers store the codes in Milvus themselves.

Ids are given out before, so a batch that is repeated after a worker died replaces its own items.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from orbithash.encoders import Data, Encoded, Encoder, Progress
from orbithash.encoders.on_ray import map_on_ray, ray_batches
from orbithash.index import Metadata, open_index
from orbithash.index.milvus.milvus_index import MilvusIndex

Known = dict[str, tuple[int, str]]  # id and stamp by path


def store_by_workers(
    index: MilvusIndex,
    encoder: Encoder,
    data: Data,
    items: Sequence[Metadata],
    rows: list[int],
    known: Known,
    progress: Progress,
    *,
    address: str,
) -> tuple[int, int, dict[str, str]]:
    """Return how many items were added and replaced, and the reason for each unreadable one.

    Nobody else may add items meanwhile. The ids of unreadable items stay unused.
    """
    is_known = {row: items[row].path in known for row in rows}
    next_id = index.next_id() if not all(is_known.values()) else 0
    ids: dict[int, int] = {}
    for row in rows:
        ids[row] = known[items[row].path][0] if is_known[row] else next_id
        next_id += not is_known[row]
    store = Store(index.address, {row: items[row] for row in rows}, ids)
    new = changed = 0
    unreadable: dict[str, str] = {}
    batches = ray_batches(np.array(rows, dtype=np.int64))
    for stored, reasons in map_on_ray(
        *(encoder, data, batches, progress), address=address, then=store
    ):
        replaced = sum(is_known[row] for row in stored.tolist())
        new, changed = new + len(stored) - replaced, changed + replaced
        unreadable |= reasons
    return new, changed, unreadable


@dataclass(frozen=True)
class Store:
    """Stores a batch, on a worker; returns the rows stored and the reasons for the others."""

    address: str
    items: dict[int, Metadata]
    ids: dict[int, int]

    def __call__(self, encoded: Encoded) -> tuple[Int64[np.ndarray, " n"], dict[str, str]]:
        rows = encoded.rows.tolist()
        ids = np.array([self.ids[row] for row in rows], dtype=np.int64)
        with open_index(self.address) as index:
            index.update(ids, encoded.codes, [self.items[row] for row in rows])
        return encoded.rows, encoded.unreadable
