"""The tables of an index through one connection, and transactions on them."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from orbithash.codes import MAX_BITS, MIN_BITS
from orbithash.errors import DamagedIndexError, ReplacedIndexError
from orbithash.index.checks import LARGEST_ID
from orbithash.index.store.blocks import CodeBlocks
from orbithash.index.store.database import FILE, connect, file_identity, reading, writing
from orbithash.index.store.manifest import LiveSegment, Manifest, OpenSegments, SegmentGoneError
from orbithash.index.store.rows import MetadataRows
from orbithash.index.store.upgrade import upgrade

MANY_IDS = 1 << 16  # more are compared with a range of ids instead of being looked up
GONE_ATTEMPTS = 20  # one fails only if segments are merged between reading and opening them


class Tables:
    """One connection to an index; not for several threads at once."""

    def __init__(
        self, folder: Path, n_bits: int, files: OpenSegments, *, unchecked: bool = False
    ) -> None:
        self.folder, self.connection = folder, connect(folder)
        self._file = folder / FILE
        self._identity = file_identity(self._file)
        self._is_current = False
        self.read_version = -1  # of the state that is being read
        self.blocks = CodeBlocks(self.connection, folder, n_bits)
        self.rows = MetadataRows(self.connection, folder)
        self.manifest = Manifest(self.connection, folder, files, unchecked=unchecked)

    @contextmanager
    def reading(self) -> Iterator[tuple[LiveSegment, ...]]:
        """Let all reads of the block see one state; yield its segments.

        A segment that is merged away before it is opened is one of an older state: look again.
        """
        self.check_in_place()
        for attempt in range(GONE_ATTEMPTS):
            with reading(self.connection, self.folder):
                try:
                    segments = self.segments()
                except SegmentGoneError as error:
                    if attempt + 1 == GONE_ATTEMPTS:
                        raise DamagedIndexError(self.folder, f"{error} is missing") from None
                    continue
                yield segments
                return

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Run the block as one transaction: all of its writes, or none."""
        self.check_in_place()
        with writing(self.connection, self.folder):
            if not self._is_current:
                upgrade(self.connection)
            yield
        self.check_in_place()  # otherwise this was stored in a file that nobody finds
        self._is_current = True  # an index never gets an older format

    def is_in_place(self) -> bool:
        """Return whether the folder still holds the database that is open."""
        return self._identity is not None and file_identity(self._file) == self._identity

    def check_in_place(self) -> None:
        if not self.is_in_place():
            raise ReplacedIndexError(self.folder, "was removed or replaced while it was open")

    def segments(self) -> tuple[LiveSegment, ...]:
        self.read_version = self.version()
        return self.manifest.segments(self.read_version)

    def version(self) -> int:
        return int(self.fact("version"))

    def fact(self, name: str) -> Any:
        query = "SELECT value FROM facts WHERE name = ?"
        row = self.connection.execute(query, (name,)).fetchone()
        if row is None:
            raise DamagedIndexError(self.folder, f"its {name} is missing")
        return row[0]

    def count(self) -> int:
        return self.blocks.count() + self.manifest.count()

    def change_version(self) -> None:
        self.connection.execute("UPDATE facts SET value = value + 1 WHERE name = 'version'")

    def use_ids_up_to(self, last: int) -> None:
        """Never give out these ids again."""
        self.connection.execute(
            "UPDATE facts SET value = max(value, ?) WHERE name = 'next_id'",
            (min(last + 1, LARGEST_ID),),
        )

    def stored(self, ids: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " stored"]:
        """Return those of the ids that are in use, in their order."""
        if len(ids) == 0 or int(ids.min()) >= int(self.fact("next_id")):
            return ids[:0]
        if len(ids) > MANY_IDS:
            # Every item in a block has a row.
            known = self.rows.described(int(ids.min()), int(ids.max()))
            in_use = np.isin(ids, known)
        else:
            in_use = np.isin(ids, self.rows.stored(ids))
        for live in self.segments():
            in_use |= live.find(ids)[1]
        return ids[in_use]

    def locate(
        self, ids: Int64[np.ndarray, " n"]
    ) -> Iterator[tuple[LiveSegment, Int64[np.ndarray, " found"], Int64[np.ndarray, " found"]]]:
        """Yield each segment that holds some of the ids, with these ids and their positions."""
        for live in self.segments():
            positions, is_stored = live.find(ids)
            if is_stored.any():
                yield live, ids[is_stored], positions[is_stored]


def read_facts(connection: sqlite3.Connection, folder: Path) -> dict[str, Any]:
    with reading(connection, folder):
        facts = dict(connection.execute("SELECT name, value FROM facts").fetchall())
    for name in ("n_bits", "next_id", "version"):
        if not isinstance(facts.get(name), int):
            raise DamagedIndexError(folder, f"its {name} is not as written")
    if not MIN_BITS <= facts["n_bits"] <= MAX_BITS:
        raise DamagedIndexError(folder, f"{facts['n_bits']} is not a valid number of bits")
    return facts
