"""Checks of ids, codes and metadata, and new ids, the same for all engines."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int64, UInt8
from numpy.typing import ArrayLike

from orbithash.codes import as_codes, binarize
from orbithash.errors import IdInUseError, InputError, NoIdsLeftError, StorageError
from orbithash.index.base import Metadata, SearchEngine

LARGEST_ID = 2**63 - 1


def checked_items(
    ids: ArrayLike, codes: ArrayLike | None, metadata: Sequence[Metadata] | None, *, n_bits: int
) -> tuple[Int64[np.ndarray, " n"], UInt8[np.ndarray, "n bytes"]]:
    """Return ids and codes as arrays; raise unless ids are unique, one for each code."""
    codes = checked_codes(codes, n_bits)
    ids = checked_ids(ids)
    if len(ids) != len(codes):
        raise InputError(f"got {len(ids)} ids for {len(codes)} codes; give each code one id")
    if metadata is not None and len(metadata) != len(ids):
        raise InputError(
            f"got metadata of {len(metadata)} items for {len(ids)} codes; give one for each"
        )
    ordered = np.sort(ids)
    repeated = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(repeated):
        raise InputError(f"id {ordered[repeated[0]]} is given twice; give each code a different id")
    return ids, codes


def checked_ids(ids: ArrayLike) -> Int64[np.ndarray, " n"]:
    array = np.asarray(ids)
    if array.size == 0 and not hasattr(ids, "dtype"):
        array = array.astype(np.int64)  # an empty list is float to numpy
    if array.ndim != 1 or array.dtype.kind not in "iu" or not np.can_cast(array.dtype, np.int64):
        raise InputError(
            f"got ids of shape {array.shape} and type {array.dtype}; give whole numbers that fit "
            "int64, one for each code"
        )
    return array.astype(np.int64)


def checked_codes(codes: ArrayLike | None, n_bits: int) -> UInt8[np.ndarray, "n bytes"]:
    if codes is None:
        raise InputError("got no codes; call add(codes=codes) or add(ids, codes)")
    return as_codes(codes, n_bits)


def checked_queries(
    queries: ArrayLike, n_bits: int
) -> UInt8[np.ndarray, "queries bytes"] | Float[np.ndarray, "queries bits"]:
    """Return queries as an array, uint8 if they are codes and floats if they are embeddings."""
    try:
        array = np.asarray(queries)
    except ValueError:
        return as_codes(queries, n_bits)  # raises
    if array.dtype.kind != "f" or (array.size == 0 and not hasattr(queries, "dtype")):
        return as_codes(queries, n_bits)
    if array.ndim == 2 and array.shape[1] != n_bits:
        raise InputError(
            f"got embeddings of {array.shape[1]} bits but the index holds codes of {n_bits}; "
            "embed the queries with the encoder that computed the codes"
        )
    binarize(array)  # raises if they are no embeddings
    return array


def as_ids(numbers: Sequence[int]) -> Int64[np.ndarray, " n"]:
    """Return ids that a user has written, as an array."""
    for number in numbers:
        if not -LARGEST_ID - 1 <= number <= LARGEST_ID:
            raise InputError(f"{number} is no id: ids are int64; search shows the ids")
    return np.array(numbers, dtype=np.int64)


def checked_next_id(identifier: int) -> int:
    """Return the id after all others; raise if it would exceed the largest."""
    # The largest id itself is never assigned, because no int64 could be the id after it.
    if identifier >= LARGEST_ID:
        raise NoIdsLeftError
    return identifier


def check_k(k: int) -> None:
    if k < 1:
        raise InputError(f"k={k}; ask for at least 1 neighbour")


def check_radius(radius: int, n_bits: int) -> None:
    if not isinstance(radius, int | np.integer) or not 0 <= radius <= n_bits:
        raise InputError(
            f"got radius={radius!r}, and the codes have {n_bits} bits; "
            f"give a whole number from 0 to {n_bits}"
        )


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
