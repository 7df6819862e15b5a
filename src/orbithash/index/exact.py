"""Exact search: compares the query with every stored code."""

import math

import numpy as np
from jaxtyping import Int64, UInt8

from orbithash.errors import CodeLengthError, InputError
from orbithash.index.base import Neighbours
from orbithash.kernels.nearest import nearest


class ExactIndex:
    """Compares the query with every code, on all cores; needs nothing but numpy and numba."""

    def __init__(self, n_bits: int) -> None:
        self.n_bits = n_bits
        # Sorted by id, so that a kernel that keeps ties in database order keeps them in id order.
        self._ids = np.empty(0, dtype=np.int64)
        self._codes = np.empty((0, math.ceil(n_bits / 8)), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, ids: Int64[np.ndarray, " n"], codes: UInt8[np.ndarray, "m bytes"]) -> None:
        """Store codes under ids that are not in use yet."""
        self._check_length(codes)
        if len(ids) != len(codes):
            raise InputError(f"got {len(ids)} ids for {len(codes)} codes; give each code one id")
        all_ids = np.concatenate([self._ids, ids])
        order = np.argsort(all_ids, kind="stable")
        repeated = np.flatnonzero(np.diff(all_ids[order]) == 0)
        if len(repeated):
            raise InputError(
                f"id {all_ids[order][repeated[0]]} is stored already or given twice; "
                "every code needs an id of its own"
            )
        self._ids = all_ids[order]
        self._codes = np.concatenate([self._codes, codes])[order]

    def search(self, codes: UInt8[np.ndarray, "queries bytes"], k: int) -> Neighbours:
        """The k nearest of each query; fewer columns when fewer codes are stored."""
        self._check_length(codes)
        if k < 1:
            raise InputError(f"k={k}; ask for at least 1 neighbour")
        k = min(k, len(self))
        if k == 0 or len(codes) == 0:
            nothing = np.empty((len(codes), k), dtype=np.int64)
            return Neighbours(ids=nothing, distances=nothing.copy())
        distances, positions = nearest(codes, self._codes, k)
        return Neighbours(ids=self._ids[positions], distances=distances.astype(np.int64))

    def _check_length(self, codes: UInt8[np.ndarray, "n bytes"]) -> None:
        expected = self._codes.shape[1]
        if codes.shape[1] != expected:
            raise CodeLengthError("the", got=codes.shape[1], expected=expected, n_bits=self.n_bits)
