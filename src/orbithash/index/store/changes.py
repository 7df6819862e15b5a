"""Changes of an index: each is one transaction. Codes are sealed in the background."""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int64, UInt8

from orbithash.errors import HashingError, IdInUseError, NoIdsLeftError
from orbithash.index.base import NO_METADATA, Metadata
from orbithash.index.checks import LARGEST_ID
from orbithash.index.packed_ids import IdRange
from orbithash.index.store import sealing
from orbithash.index.store.database import close
from orbithash.index.store.manifest import OpenSegments
from orbithash.index.store.sealing import LONG_WAIT, SEAL_AT, Sealing
from orbithash.index.store.tables import Tables

logger = logging.getLogger(__name__)

MANY_CODES = 1 << 16  # without metadata, so many are written as a segment, past the database


class Changes:
    """Adds, replaces and removes items, through a connection of its own.

    A change may wait long for other processes, and threads that search must not wait with it.
    """

    def __init__(self, folder: Path, n_bits: int, files: OpenSegments) -> None:
        self._folder, self._n_bits, self._files = folder, n_bits, files
        self.tables = Tables(folder, n_bits, files)
        self._lock = threading.Lock()
        self._sealing: threading.Thread | None = None
        self._is_closed = False

    def add(
        self,
        ids: Int64[np.ndarray, " n"],
        codes: UInt8[np.ndarray, "n bytes"],
        metadata: Sequence[Metadata] | None,
    ) -> None:
        """Store items under ids that are not in use."""
        if metadata is None and len(ids) >= MANY_CODES:
            self._add_many(ids, codes)
            return
        with self._lock, self.tables.writing():
            if len(used := self.tables.stored(ids)):
                raise IdInUseError(int(used[0]))
            self._insert(ids, codes, metadata)
        self._seal_if_many()

    def update(
        self,
        ids: Int64[np.ndarray, " n"],
        codes: UInt8[np.ndarray, "n bytes"],
        metadata: Sequence[Metadata] | None,
    ) -> None:
        """Store items, replacing those with the same ids."""
        with self._lock, self.tables.writing():
            self._delete(self.tables.stored(ids))
            self._insert(ids, codes, metadata)
        self._seal_if_many()

    def remove(self, ids: Int64[np.ndarray, " n"]) -> int:
        """Remove items and return how many there were; unknown ids are ignored."""
        with self._lock, self.tables.writing():
            used = self.tables.stored(ids)
            self._delete(used)
        self._seal_if_many(of_segments=True)
        return len(used)

    def reserve(self, n: int) -> IdRange:
        """Return ids that were never in use, and give them to nobody else."""
        with self._lock, self.tables.writing():
            first = int(self.tables.fact("next_id"))
            if first > LARGEST_ID - n:
                raise NoIdsLeftError
            self.tables.use_ids_up_to(first + n - 1)
            return IdRange(first, n)

    def add_segment(
        self,
        ids: IdRange | Int64[np.ndarray, " n"],
        batches: Iterable[UInt8[np.ndarray, "..."]],
        file: tuple[str, str, int] | None = None,
    ) -> None:
        """Store codes without metadata under ascending ids, in a segment of their own."""
        with self._lock:
            writer = Sealing(self.tables, self._n_bits)
            with writer.alone_or_fail(wait=LONG_WAIT):
                writer.add(ids, batches, file)
        self._seal_if_many(of_segments=True)

    def compact(self) -> None:
        """Seal all codes, and merge all segments into one."""
        with self._lock:
            with self.tables.writing():
                pass  # upgrades an older format, and raises if the index is read-only
            Sealing(self.tables, self._n_bits).run(everything=True, wait=LONG_WAIT)

    def close(self) -> None:
        self._is_closed = True  # a merge in progress is given up
        if self._sealing is not None:
            self._sealing.join()
        with self._lock:
            close(self.tables.connection, self._folder)

    def _add_many(self, ids: Int64[np.ndarray, " n"], codes: UInt8[np.ndarray, "n bytes"]) -> None:
        if np.any(ids[1:] < ids[:-1]):
            order = np.argsort(ids)
            ids, codes = ids[order], codes[order]
        with self._lock, self.tables.writing():
            if len(used := self.tables.stored(ids)):  # before the file is written
                raise IdInUseError(int(used[0]))
        self.add_segment(ids, (codes[i : i + SEAL_AT] for i in range(0, len(codes), SEAL_AT)))

    def _insert(
        self,
        ids: Int64[np.ndarray, " n"],
        codes: UInt8[np.ndarray, "n bytes"],
        metadata: Sequence[Metadata] | None,
    ) -> None:
        if len(ids) == 0:
            return
        tables = self.tables
        tables.change_version()
        tables.use_ids_up_to(int(ids.max()))
        tables.rows.add(ids, [NO_METADATA] * len(ids) if metadata is None else metadata)
        tables.blocks.add(ids, codes)

    def _delete(self, ids: Int64[np.ndarray, " n"]) -> None:
        if len(ids) == 0:
            return
        tables, in_blocks = self.tables, np.ones(len(ids), dtype=np.bool_)
        for live, found, positions in tables.locate(ids):
            tables.manifest.remove(live.number, np.sort(positions))
            in_blocks &= ~np.isin(ids, found)
        tables.change_version()
        tables.rows.remove(ids)
        tables.blocks.remove(ids[in_blocks])

    def _seal_if_many(self, *, of_segments: bool = False) -> None:
        """Seal in the background if there is enough; one thread at a time."""
        if self._is_closed or (self._sealing is not None and self._sealing.is_alive()):
            return
        with self._lock:
            needed = int(self.tables.fact("n_codes")) >= sealing.SEAL_AT
            if of_segments and not needed:
                with self.tables.reading() as segments:
                    needed = bool(sealing.to_merge(segments))
        if needed:
            self._sealing = threading.Thread(
                target=seal_in_background,
                args=(self._folder, self._n_bits, self._files, lambda: self._is_closed),
                name="sealing",
            )
            self._sealing.start()


def seal_in_background(
    folder: Path, n_bits: int, files: OpenSegments, stopped: Callable[[], bool]
) -> None:
    """Seal through a connection of its own; errors are logged, as nothing is lost by them."""
    try:
        tables = Tables(folder, n_bits, files)
        try:
            Sealing(tables, n_bits, stopped).run(everything=False)
        finally:
            close(tables.connection, folder)
    except HashingError as error:
        logger.warning("codes stay in the database until they can be sealed: %s", error)
