"""The manifest: which segments an index has, and which of their items were removed since.

A reader sees the segments of its transaction. A segment that was merged away since is gone from
the folder, but a process that has mapped it keeps it until it has seen the newer state.
"""

import logging
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64

from orbithash.errors import DamagedIndexError
from orbithash.index.parted_table import NO_IDS, Part
from orbithash.index.store.database import change_number, check_number, database_format
from orbithash.index.store.labels import MODULUS, id_checksum
from orbithash.index.store.segment import Segment, SegmentInfo

logger = logging.getLogger(__name__)

COLUMNS = "number, file, count, first, last, length, checksum, n_described, n_removed, removed_sum"


class SegmentGoneError(Exception):
    """A segment was merged away after the transaction began that found it in the manifest."""


@dataclass(frozen=True, eq=False)
class LiveSegment:
    """A segment and the positions of its items that were removed, in ascending order."""

    number: int
    segment: Segment
    n_described: int
    removed: Int64[np.ndarray, " removed"]
    removed_sum: int

    def __len__(self) -> int:
        return len(self.segment) - len(self.removed)

    @property
    def part(self) -> Part:
        return Part(self.segment.table, self.segment.table.ids[self.removed])

    def find(
        self, ids: Int64[np.ndarray, " m"]
    ) -> tuple[Int64[np.ndarray, " m"], Bool[np.ndarray, " m"]]:
        """Return the positions of ids, and which are stored here and not removed."""
        positions, is_stored = self.segment.find(ids)
        return positions, is_stored & ~np.isin(positions, self.removed)


class OpenSegments:
    """The open files of segments, shared by the connections of one process."""

    def __init__(self, folder: Path, n_bits: int) -> None:
        self._folder, self._n_bits = folder, n_bits
        self._open: dict[str, Segment] = {}
        self._lock = threading.Lock()

    def get(self, info: SegmentInfo) -> Segment:
        with self._lock:
            if info.file not in self._open:
                try:
                    self._open[info.file] = Segment(self._folder, info, self._n_bits)
                except FileNotFoundError:
                    raise SegmentGoneError(info.file) from None
            return self._open[info.file]

    def keep(self, files: Iterable[str]) -> None:
        """Let go of all other files."""
        kept = set(files)
        with self._lock:
            self._open = {file: segment for file, segment in self._open.items() if file in kept}


class Manifest:
    """The database tables `segments` and `removed`; the caller has begun a transaction."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        folder: Path,
        files: OpenSegments,
        *,
        unchecked: bool = False,
    ) -> None:
        self._connection, self._folder, self._files = connection, folder, files
        self._unchecked = unchecked  # leave out segments that cannot be opened
        self._version: object = None
        self._segments: tuple[LiveSegment, ...] = ()
        self._last_removed = 0  # number of the last row of `removed` that was read

    def segments(self, version: int) -> tuple[LiveSegment, ...]:
        """Return the segments in the state of this version; raise if any is not whole."""
        if version != self._version:
            try:
                self._segments = tuple(self._read())
            except BaseException:
                self._version, self._segments, self._last_removed = None, (), 0
                raise
            self._version = version
        return self._segments

    def add(self, info: SegmentInfo, n_described: int, removed: Int64[np.ndarray, " n"]) -> None:
        """Add a segment, of which some positions are removed already."""
        row = (info.file, info.count, info.first, info.last, info.length, info.checksum)
        cursor = self._connection.execute(
            f"INSERT INTO segments ({COLUMNS.partition(', ')[2]}) VALUES (?,?,?,?,?,?,?,0,0)",
            (*row, n_described),
        )
        change_number(self._connection, "n_segments", 1)
        self.remove(int(cursor.lastrowid or 0), removed)

    def remove(self, number: int, positions: Int64[np.ndarray, " n"]) -> None:
        """Mark positions of a segment as removed."""
        self._connection.executemany(
            "INSERT INTO removed (segment, position) VALUES (?, ?)",
            [(number, position) for position in positions.tolist()],
        )
        self._connection.execute(
            "UPDATE segments SET n_removed = n_removed + ?, "
            f"removed_sum = (removed_sum + ?) % {MODULUS} WHERE number = ?",
            (len(positions), id_checksum(positions), number),
        )

    def drop(self, numbers: Iterable[int]) -> None:
        """Remove segments, whose files are deleted after the transaction."""
        for number in numbers:
            self._connection.execute("DELETE FROM segments WHERE number = ?", (number,))
            self._connection.execute("DELETE FROM removed WHERE segment = ?", (number,))
            change_number(self._connection, "n_segments", -1)

    def files(self) -> set[str]:
        """Return the files of all segments."""
        if database_format(self._connection) < 3:
            return set()
        return {file for (file,) in self._connection.execute("SELECT file FROM segments")}

    def open(self, info: SegmentInfo) -> Segment:
        """Open a segment that has just been written."""
        return self._files.get(info)

    def count(self) -> int:
        """Return the number of items in segments."""
        if database_format(self._connection) < 3:
            return 0
        query = "SELECT coalesce(sum(count - n_removed), 0) FROM segments"
        return int(self._connection.execute(query).fetchone()[0])

    def check(self) -> None:
        """Raise unless all segments are there, and can be opened."""
        for row in self._rows():
            try:
                self._files.get(SegmentInfo(*row[1:7]))
            except SegmentGoneError as error:
                raise DamagedIndexError(self._folder, f"{error} is missing") from None

    def _rows(self) -> list[tuple[Any, ...]]:
        if database_format(self._connection) < 3:
            return []
        query = f"SELECT {COLUMNS} FROM segments ORDER BY number"
        rows = self._connection.execute(query).fetchall()
        check_number(self._connection, self._folder, "n_segments", len(rows))
        return rows

    def _read(self) -> Iterator[LiveSegment]:
        if database_format(self._connection) < 3:
            return
        try:
            rows = self._rows()
        except DamagedIndexError:
            if not self._unchecked:
                raise
            query = f"SELECT {COLUMNS} FROM segments ORDER BY number"
            rows = self._connection.execute(query).fetchall()
        # By file, because a number may be used again.
        known = {live.segment.info.file: live for live in self._segments}
        new = self._newly_removed()
        for number, *info, n_described, n_removed, removed_sum in rows:
            if not all(isinstance(value, int) for value in (*info[1:], n_described, n_removed)):
                raise DamagedIndexError(self._folder, "its manifest is not as written")
            live = known.get(info[0])
            if live is None:
                try:
                    segment = self._files.get(SegmentInfo(*info))
                except (DamagedIndexError, SegmentGoneError) as error:
                    if not self._unchecked:
                        raise
                    logger.warning("left out: %s", error)
                    continue
                live = LiveSegment(number, segment, n_described, NO_IDS, 0)
            if number in new:
                removed = np.sort(np.concatenate([live.removed, new[number]]))
                live = replace(live, removed=removed, removed_sum=id_checksum(removed))
            if not self._unchecked and (len(live.removed), live.removed_sum) != (
                *(n_removed, removed_sum),
            ):
                raise DamagedIndexError(
                    self._folder,
                    f"the list of items that were removed from {info[0]} is not as written",
                )
            yield live

    def _newly_removed(self) -> dict[int, Int64[np.ndarray, " n"]]:
        """Return the positions that were removed since the last time, by segment."""
        rows = np.array(
            self._connection.execute(
                "SELECT number, segment, position FROM removed WHERE number > ?",
                (self._last_removed,),
            ).fetchall(),
            dtype=np.int64,
        ).reshape(-1, 3)
        if len(rows):
            self._last_removed = int(rows[:, 0].max())
        return {int(i): rows[rows[:, 1] == i, 2] for i in np.unique(rows[:, 1])}
