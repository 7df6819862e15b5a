"""Groups of near-duplicates: items that steps of at most some bits connect."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import overload

import numpy as np
from jaxtyping import Bool, Int32, Int64, UInt16, UInt64
from numpy.typing import ArrayLike

from orbithash.index.checks import check_radius
from orbithash.index.code_table import FEW_PAIRS, CodeTable
from orbithash.kernels.plain_search import connected_reference

PART = 1 << 16  # items whose distances are computed together


@dataclass(frozen=True, eq=False)
class DuplicateGroup:
    """Items of which each is within the radius of another one.

    Its ends may be further apart than the radius, if items in between connect them.
    """

    ids: Int64[np.ndarray, " n"]  # ascending
    distances: UInt16[np.ndarray, " n"]  # bits in which each differs from the first

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def spread(self) -> int:
        """The largest number of bits in which an item differs from the first."""
        return int(self.distances.max())


@dataclass(frozen=True, eq=False)
class DuplicateGroups:
    """Groups of two items or more, the largest first, then by the smallest id; a sequence.

    A group is made when it is read: the arrays take ten bytes for each item of a group.
    """

    radius: int
    ids: Int64[np.ndarray, " n"]  # of all groups, one after the other
    distances: UInt16[np.ndarray, " n"]
    starts: Int64[np.ndarray, " ends"]  # of each group in these arrays, and the end of the last

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, number: int) -> DuplicateGroup: ...

    @overload
    def __getitem__(self, number: slice) -> list[DuplicateGroup]: ...

    def __getitem__(self, number: int | slice) -> DuplicateGroup | list[DuplicateGroup]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        start, stop = self.starts[:-1][number], self.starts[1:][number]
        return DuplicateGroup(self.ids[start:stop], self.distances[start:stop])

    def __iter__(self) -> Iterator[DuplicateGroup]:
        return (self[number] for number in range(len(self)))

    def across(self, first: ArrayLike, second: ArrayLike) -> "DuplicateGroups":
        """Return the groups that hold an item of both: two arrays of ids."""
        return self.holding(np.isin(self.ids, first), np.isin(self.ids, second))

    def holding(
        self, first: Bool[np.ndarray, " n"], second: Bool[np.ndarray, " n"]
    ) -> "DuplicateGroups":
        """Return the groups that hold an item of each of two masks of `ids`."""
        sizes = np.diff(self.starts)
        if len(sizes) == 0:
            return self
        has = [np.logical_or.reduceat(mask, self.starts[:-1]) for mask in (first, second)]
        kept = has[0] & has[1]
        items = np.repeat(kept, sizes)
        starts = np.concatenate([[0], np.cumsum(sizes[kept])])
        return DuplicateGroups(self.radius, self.ids[items], self.distances[items], starts)


def duplicate_groups(table: CodeTable, radius: int) -> DuplicateGroups:
    """Return the groups of a table's items."""
    check_radius(radius, table.n_bits)
    if len(table) ** 2 <= FEW_PAIRS:
        firsts = connected_reference(table.codes(), radius)
    else:
        from orbithash.kernels.search.duplicates import connected_words

        firsts = connected_words(table.words, table.n_bits, radius)
    sizes = np.bincount(firsts, minlength=len(table))
    # Positions are in the order of ids, and the sort is stable.
    groups = np.flatnonzero(sizes > 1)
    groups = groups[np.argsort(-sizes[groups], kind="stable")]
    starts = np.concatenate([[0], np.cumsum(sizes[groups])])
    del sizes
    members = in_groups(firsts, groups)
    del firsts
    distances = distances_from(
        table.words, members, np.repeat(members[starts[:-1]], np.diff(starts))
    )
    return DuplicateGroups(int(radius), table.ids[members], distances, starts)


def in_groups(
    firsts: Int64[np.ndarray, " n"], groups: Int64[np.ndarray, " groups"]
) -> Int64[np.ndarray, " members"]:
    """Return the positions of all members, group by group."""
    rank: Int32[np.ndarray, " n"] = np.full(len(firsts), -1, dtype=np.int32)
    rank[groups] = np.arange(len(groups))
    rank = rank[firsts]
    members = np.flatnonzero(rank >= 0)
    return members[np.argsort(rank[members], kind="stable")]


def distances_from(
    words: UInt64[np.ndarray, "words n"],
    members: Int64[np.ndarray, " members"],
    others: Int64[np.ndarray, " members"],
) -> UInt16[np.ndarray, " members"]:
    """Return the bits in which the codes at two lists of positions differ, pair by pair."""
    distances = np.empty(len(members), dtype=np.uint16)
    for start in range(0, len(members), PART):
        part = slice(start, start + PART)
        different = np.bitwise_count(words[:, members[part]] ^ words[:, others[part]])
        distances[part] = different.sum(axis=0, dtype=np.uint16)
    return distances
