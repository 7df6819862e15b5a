"""Ids for new items: the next free ones, also while other processes add to the same index."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64, UInt8

from orbithash.errors import IdInUseError, NoIdsLeftError, StorageError
from orbithash.index.arguments import LARGEST_ID
from orbithash.index.base import Index, Metadata

ATTEMPTS = 20  # each fails only if another process has added between a look and a write


def add_under_new_ids(
    index: Index, codes: UInt8[np.ndarray, "n bytes"], metadata: Sequence[Metadata]
) -> Int64[np.ndarray, " n"]:
    """Store items together under ids that were not in use, and return them."""
    if len(codes) == 0:
        return np.empty(0, dtype=np.int64)
    for _ in range(ATTEMPTS):
        first = index.next_id()
        if first > LARGEST_ID - len(codes):
            raise NoIdsLeftError
        ids = np.arange(first, first + len(codes), dtype=np.int64)
        try:
            index.add(ids, codes, metadata)
        except IdInUseError:
            continue
        return ids
    raise StorageError("other processes keep adding to this index; try again when they are done")
