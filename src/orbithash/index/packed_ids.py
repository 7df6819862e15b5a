"""Ids in ascending order that take few bytes or none: a range, or offsets from the first of a run.

Both behave like a sorted array of int64 where the tables of codes read one: `ids[positions]`,
`len(ids)`, and `find_ids`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Int64, Shaped, UInt8

RUN = 8192  # ids with one base, and one width of their offsets
WIDTHS = (1, 2, 4, 8)  # bytes of an offset; 0 where the ids of a run are consecutive

Found = tuple[Int64[np.ndarray, " m"], Bool[np.ndarray, " m"]]  # positions, and which are stored


@dataclass(frozen=True)
class IdRange:
    """Consecutive ids."""

    first: int
    count: int

    nbytes = 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(
        self, positions: Shaped[np.ndarray, "..."] | slice | int
    ) -> Int64[np.ndarray, "..."]:
        return np.asarray(self.first + as_positions(positions, self.count))

    def find(self, ids: Int64[np.ndarray, " m"]) -> Found:
        last = self.first + self.count - 1
        is_stored = (ids >= self.first) & (ids <= last)
        # Clipped first: differences of distant ids would overflow.
        return np.clip(ids, self.first, max(last, self.first)) - self.first, is_stored


@dataclass(frozen=True, eq=False)
class PackedIds:
    """Runs of ids: the first id of each, and the offsets of its ids, in as few bytes as fit."""

    count: int
    bases: Int64[np.ndarray, " runs"]
    widths: Int64[np.ndarray, " runs"]
    starts: Int64[np.ndarray, " runs"]  # of each run in `offsets`, a multiple of 8
    offsets: UInt8[np.ndarray, " bytes"]  # a multiple of 8 bytes

    def __len__(self) -> int:
        return self.count

    @property
    def nbytes(self) -> int:
        arrays = (self.bases, self.widths, self.starts, self.offsets)
        return sum(array.nbytes for array in arrays)

    def __getitem__(
        self, positions: Shaped[np.ndarray, "..."] | slice | int
    ) -> Int64[np.ndarray, "..."]:
        positions = np.asarray(as_positions(positions, self.count))
        runs, places = np.divmod(positions, RUN)
        widths = self.widths[runs]
        offsets = places.astype(np.uint64)
        for width in WIDTHS:
            at = widths == width
            if at.any():
                column = self.offsets.view(f"<u{width}")
                offsets[at] = column[self.starts[runs[at]] // width + places[at]]
        # As uint64, sums beyond the largest int64 come back around to the right id.
        return np.asarray((self.bases[runs].view(np.uint64) + offsets).view(np.int64))

    def find(self, ids: Int64[np.ndarray, " m"]) -> Found:
        positions = np.zeros(len(ids), dtype=np.int64)
        is_stored = np.zeros(len(ids), dtype=np.bool_)
        order = np.argsort(ids, kind="stable")
        runs = np.maximum(np.searchsorted(self.bases, ids[order], side="right") - 1, 0)
        bounds = np.flatnonzero(np.diff(runs, prepend=-1, append=-1))
        for start, stop in pairwise(bounds.tolist()):
            run, wanted = int(runs[start]), order[start:stop]
            of_run = self[run * RUN : (run + 1) * RUN]
            places = np.minimum(np.searchsorted(of_run, ids[wanted]), len(of_run) - 1)
            positions[wanted] = run * RUN + places
            is_stored[wanted] = of_run[places] == ids[wanted]
        return positions, is_stored


Ids = Int64[np.ndarray, " n"] | IdRange | PackedIds


def find_ids(stored: Ids, ids: Int64[np.ndarray, " m"]) -> Found:
    """Return the positions of ids, and which of them are stored at all."""
    if isinstance(stored, IdRange | PackedIds):
        if len(stored) == 0:
            return np.zeros(len(ids), dtype=np.int64), np.zeros(len(ids), dtype=np.bool_)
        return stored.find(ids)
    positions = np.searchsorted(stored, ids)
    if len(stored) == 0:
        return positions, np.zeros(len(ids), dtype=np.bool_)
    return positions, stored[np.minimum(positions, len(stored) - 1)] == ids


def count_up_to(stored: Ids, identifier: int) -> int:
    """Return how many of the stored ids are at most this one."""
    low, high = 0, len(stored)
    while low < high:
        middle = (low + high) // 2
        if int(stored[np.array([middle])][0]) <= identifier:
            low = middle + 1
        else:
            high = middle
    return low


def pack_run(ids: Int64[np.ndarray, " n"]) -> tuple[int, int, bytes]:
    """Return base, width and offsets of at most `RUN` ascending ids; offsets fill whole words.

    >>> pack_run(np.array([5, 6, 7])), pack_run(np.array([5, 9]))
    ((5, 0, b''), (5, 1, b'\\x00\\x04\\x00\\x00\\x00\\x00\\x00\\x00'))
    """
    offsets = ids.view(np.uint64) - ids[:1].view(np.uint64)
    span = int(offsets[-1])
    if span == len(ids) - 1:
        return int(ids[0]), 0, b""
    width = next(width for width in WIDTHS if span < 1 << (8 * width))
    packed = offsets.astype(f"<u{width}").tobytes()
    return int(ids[0]), width, packed + bytes(-len(packed) % 8)


def merged_runs(parts: list[Ids], size: int) -> Iterator[list[slice]]:
    """Yield a slice of each part, so that the ids of all slices follow those before.

    About `size` ids of each part at once; ids of different parts may interleave.
    """
    starts = [0] * len(parts)
    while any(start < len(part) for start, part in zip(starts, parts, strict=True)):
        ends = [
            int(part[np.array([min(start + size, len(part)) - 1])][0])
            for start, part in zip(starts, parts, strict=True)
            if start < len(part)
        ]
        stops = [
            max(start, count_up_to(part, min(ends)))
            for start, part in zip(starts, parts, strict=True)
        ]
        yield [slice(start, stop) for start, stop in zip(starts, stops, strict=True)]
        starts = stops


def as_positions(
    positions: Shaped[np.ndarray, "..."] | slice | int, count: int
) -> Int64[np.ndarray, "..."]:
    if isinstance(positions, slice):
        return np.arange(*positions.indices(count), dtype=np.int64)
    if isinstance(positions, np.ndarray) and positions.dtype == np.bool_:
        return np.flatnonzero(positions)
    found = np.asarray(positions, dtype=np.int64)
    return np.where(found < 0, found + count, found)
