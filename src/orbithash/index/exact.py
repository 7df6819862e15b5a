"""Exact search: compares the query with every stored code."""

import numpy as np

from orbithash.codes import check_codes, check_n_bits, code_bytes
from orbithash.errors import InputError
from orbithash.index.base import Neighbours
from orbithash.kernels.nearest import nearest


class ExactIndex:
    """Compares the query with every code, on all cores; needs nothing but numpy and numba."""

    def __init__(self, n_bits: int) -> None:
        check_n_bits(n_bits)
        self.n_bits = n_bits
        # Sorted by id, so that a kernel that keeps ties in database order keeps them in id order.
        self._ids = np.empty(0, dtype=np.int64)
        self._codes = np.empty((0, code_bytes(n_bits)), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, ids: np.ndarray, codes: np.ndarray) -> None:
        """Store codes under ids that are not in use yet."""
        check_codes(codes, self.n_bits)
        if ids.ndim != 1 or ids.dtype.kind not in "iu" or not np.can_cast(ids.dtype, np.int64):
            raise InputError(
                f"got ids of shape {ids.shape} and type {ids.dtype}; give whole numbers that fit "
                "int64, one for each code"
            )
        if len(ids) != len(codes):
            raise InputError(f"got {len(ids)} ids for {len(codes)} codes; give each code one id")
        all_ids = np.concatenate([self._ids, ids.astype(np.int64)])
        order = np.argsort(all_ids, kind="stable")
        repeated = np.flatnonzero(np.diff(all_ids[order]) == 0)
        if len(repeated):
            raise InputError(
                f"id {all_ids[order][repeated[0]]} is stored already or given twice; "
                "every code needs an id of its own"
            )
        self._ids = all_ids[order]
        self._codes = np.concatenate([self._codes, codes])[order]

    def search(self, codes: np.ndarray, k: int) -> Neighbours:
        """The k nearest of each query; fewer columns when fewer codes are stored."""
        check_codes(codes, self.n_bits)
        if k < 1:
            raise InputError(f"k={k}; ask for at least 1 neighbour")
        k = min(k, len(self))
        if k == 0 or len(codes) == 0:
            nothing = np.empty((len(codes), k), dtype=np.int64)
            return Neighbours(ids=nothing, distances=nothing.copy())
        distances, positions = nearest(codes, self._codes, k)
        return Neighbours(ids=self._ids[positions], distances=distances.astype(np.int64))
