"""New ids for new items."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64
from numpy.typing import ArrayLike

from orbithash.errors import IdInUseError, NoIdsLeftError, StorageError
from orbithash.index.base import Metadata, SearchEngine
from orbithash.index.checks import LARGEST_ID, checked_codes

MAX_ATTEMPTS = 20  # one fails only if another process adds between reading the id and writing


def add_under_new_ids(
    index: SearchEngine, codes: ArrayLike | None, metadata: Sequence[Metadata] | None = None
) -> Int64[np.ndarray, " n"]:
    """Add items under consecutive ids that were not in use, and return the ids."""
    codes = checked_codes(codes, index.n_bits)
    if len(codes) == 0:
        return np.empty(0, dtype=np.int64)
    for _ in range(MAX_ATTEMPTS):
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
