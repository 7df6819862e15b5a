"""Checks of the arguments of an engine, the same for all of them."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64

from orbithash.codes import check_codes
from orbithash.errors import InputError, NoIdsLeftError, UnknownIdError
from orbithash.index.base import Metadata

LARGEST_ID = 2**63 - 1


def checked_items(
    ids: np.ndarray, codes: np.ndarray, metadata: Sequence[Metadata] | None, *, n_bits: int
) -> Int64[np.ndarray, " n"]:
    """The ids as int64, or an error: each id once, for one code and one metadata."""
    check_codes(codes, n_bits)
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
        raise InputError(
            f"id {ordered[repeated[0]]} is given twice; every code needs an id of its own"
        )
    return ids


def checked_ids(ids: np.ndarray) -> Int64[np.ndarray, " n"]:
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or not np.can_cast(ids.dtype, np.int64):
        raise InputError(
            f"got ids of shape {ids.shape} and type {ids.dtype}; give whole numbers that fit "
            "int64, one for each code"
        )
    return ids.astype(np.int64)


def as_ids(numbers: Sequence[int]) -> Int64[np.ndarray, " n"]:
    """Ids that somebody has written down, as an array."""
    for number in numbers:
        if not -LARGEST_ID - 1 <= number <= LARGEST_ID:
            raise InputError(f"{number} is no id, for ids are int64; ids are shown by search")
    return np.array(numbers, dtype=np.int64)


def free_id(identifier: int) -> int:
    """The id behind all others, unless that would be past the largest."""
    # The largest itself is never given out, for then no number could say what comes after it.
    if identifier >= LARGEST_ID:
        raise NoIdsLeftError
    return identifier


def check_k(k: int) -> None:
    if k < 1:
        raise InputError(f"k={k}; ask for at least 1 neighbour")


def check_radius(radius: int) -> None:
    if radius < 0:
        raise InputError(f"radius={radius}; ask for 0 bits or more")


def not_there(identifier: int) -> InputError:
    return UnknownIdError(identifier)
