"""An index on disk: one folder with codes, ids, paths, labels and the encoder that made them.

index.sqlite        codes and metadata, see database.py
model.safetensors   the encoder, under the name that a run gives it: orbithash.load takes either
"""

import errno
import hashlib
import logging
import os
import sqlite3
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt8

from orbithash.codes import MAX_BITS, MIN_BITS, check_codes, check_n_bits
from orbithash.errors import (
    DamagedIndexError,
    HashingError,
    IdInUseError,
    InputError,
    StorageError,
)
from orbithash.index.base import (
    NOTHING_KNOWN,
    Ball,
    ClosedAfterwards,
    IndexStats,
    Items,
    Metadata,
    Neighbours,
    Where,
)
from orbithash.index.checks import (
    LARGEST_ID,
    check_k,
    check_radius,
    checked_ids,
    checked_items,
    free_id,
    not_there,
)
from orbithash.index.code_table import CodeTable
from orbithash.index.memory import MemoryIndex, balls_of, nearest_of
from orbithash.index.store.blocks import Blocks
from orbithash.index.store.database import connect, create_database, reading, writing
from orbithash.index.store.rows import Rows

logger = logging.getLogger(__name__)

ENCODER = "model.safetensors"


def create_store(folder: Path, n_bits: int, *, encoder: bytes | None = None) -> None:
    """Make an empty index, whole or not at all; `encoder` is the file that a run holds."""
    check_n_bits(n_bits)
    folder = folder.absolute()
    try:
        if folder.exists():
            raise exists(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f".{folder.name}-", dir=folder.parent, ignore_cleanup_errors=True
        ) as workplace:
            new = Path(workplace) / "new"
            write_store(new, n_bits, encoder)
            new.rename(folder)
        to_disk(folder.parent)
    except HashingError:
        raise
    except OSError as error:
        raise not_made(folder, error) from None


def write_store(new: Path, n_bits: int, encoder: bytes | None) -> None:
    """The files of an empty index in a new folder, on the disk once this returns."""
    new.mkdir()
    facts: dict[str, Any] = {"n_bits": int(n_bits), "next_id": 0, "version": 0}
    if encoder is not None:
        (new / ENCODER).write_bytes(encoder)
        facts["encoder"] = hashlib.sha256(encoder).hexdigest()
    create_database(new)
    with closing(connect(new)) as connection, writing(connection, new):
        connection.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
    for path in (*new.iterdir(), new):
        to_disk(path)


def not_made(folder: Path, error: OSError) -> HashingError:
    """Why there is no new index, in the words of whoever wanted one."""
    # Another process made it meanwhile; or the folder above is a file, which is no such case.
    if error.errno in (errno.EEXIST, errno.ENOTEMPTY) and folder.exists():
        return exists(folder)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
        return StorageError(
            f"cannot write {folder}: {error.strerror}; nothing of it is left: free some space, "
            "or check the disk, and try again"
        )
    return InputError(f"cannot write {folder}: {error.strerror}; choose another name")


def exists(folder: Path) -> InputError:
    return InputError(f"{folder} exists; open it, or give the new index another name")


def to_disk(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def read_facts(connection: sqlite3.Connection, folder: Path) -> dict[str, Any]:
    with reading(connection, folder):
        facts = dict(connection.execute("SELECT name, value FROM facts").fetchall())
    for name in ("n_bits", "next_id", "version"):
        if not isinstance(facts.get(name), int):
            raise DamagedIndexError(folder, f"its {name} is not as written")
    if not MIN_BITS <= facts["n_bits"] <= MAX_BITS:
        raise DamagedIndexError(folder, f"{facts['n_bits']} is no number of bits")
    return facts


class StoredIndex(ClosedAfterwards):
    """Codes with metadata on disk, searched in memory by one of the engines.

    Every call that changes it is one transaction: once it returns, what it stored survives the
    death of the process and of the machine. Any number of processes may search meanwhile; each
    search sees what was stored when it began.
    """

    def __init__(self, folder: Path, engine: type[MemoryIndex]) -> None:
        self.folder = folder
        self._connection = connect(folder)
        self._lock = threading.RLock()  # threads share the connection
        try:
            self._facts = read_facts(self._connection, folder)
        except BaseException:
            self._connection.close()
            raise
        self.n_bits = self._facts["n_bits"]
        self._blocks = Blocks(self._connection, folder, self.n_bits)
        self._rows = Rows(self._connection, folder)
        # A second connection, because a change may wait long for other processes, and threads that
        # search must not wait with it.
        self._writer = connect(folder)
        self._writing = threading.Lock()
        self._written_blocks = Blocks(self._writer, folder, self.n_bits)
        self._written_rows = Rows(self._writer, folder)
        self._engine = engine(self.n_bits)
        self._versions: dict[int, int] = {}  # of the blocks that the engine holds
        self._seen: object = None  # the state of the database that the engine holds

    def __len__(self) -> int:
        with self._lock, reading(self._connection, self.folder):
            return self._blocks.count()

    def add(
        self, ids: np.ndarray, codes: np.ndarray, metadata: Sequence[Metadata] | None = None
    ) -> None:
        """Store items under ids that are not in use yet."""
        ids = checked_items(ids, codes, metadata, n_bits=self.n_bits)
        with self._writing, writing(self._writer, self.folder):
            if used := self._written_rows.stored(ids):
                raise IdInUseError(used[0])
            self._insert(ids, codes, metadata)

    def update(
        self, ids: np.ndarray, codes: np.ndarray, metadata: Sequence[Metadata] | None = None
    ) -> None:
        """Store items in the place of those with the same ids, if there are any."""
        ids = checked_items(ids, codes, metadata, n_bits=self.n_bits)
        with self._writing, writing(self._writer, self.folder):
            used = np.array(self._written_rows.stored(ids), dtype=np.int64)
            self._delete(used)
            self._insert(ids, codes, metadata)

    def remove(self, ids: np.ndarray) -> int:
        """Forget these items; those that are not there do not matter. Returns how many were."""
        ids = np.unique(checked_ids(ids))
        with self._writing, writing(self._writer, self.folder):
            used = np.array(self._written_rows.stored(ids), dtype=np.int64)
            self._delete(used)
        return len(used)

    def get(self, ids: np.ndarray) -> Items:
        """These items, in the order asked for."""
        ids = checked_ids(ids)
        items = self._present(ids)
        if len(items) < len(ids):
            raise not_there(int(np.setdiff1d(ids, items.ids)[0]))
        return items

    def search(self, codes: np.ndarray, k: int, where: Where | None = None) -> Neighbours:
        """The k nearest items of each query; fewer columns when fewer are stored or admitted."""
        check_codes(codes, self.n_bits)
        check_k(k)
        table, admitted = self._refresh(where)
        if admitted is None:
            return self._engine.nearest(table, codes, min(k, len(table)))
        return nearest_of(table.among(admitted), codes, k)

    def within(self, codes: np.ndarray, radius: int, where: Where | None = None) -> list[Ball]:
        """The items at most `radius` bits away from each query."""
        check_codes(codes, self.n_bits)
        check_radius(radius)
        table, admitted = self._refresh(where)
        if admitted is None:
            return self._engine.balls(table, codes, radius)
        return balls_of(table.among(admitted), codes, radius)

    def iterate(self, batch_size: int = 4096) -> Iterator[Items]:
        """All items in the order of ids, some at a time; what is added meanwhile may be missed."""
        ids = self._refresh(None)[0].ids
        for start in range(0, len(ids), batch_size):
            yield self._present(ids[start : start + batch_size])

    def undamaged(self) -> Iterator[Items]:
        """All items of a damaged index that are as they were written; the others are logged."""
        with self._lock, reading(self._connection, self.folder):
            firsts = self._blocks.firsts()
        for first in firsts.tolist():
            try:
                with self._lock, reading(self._connection, self.folder):
                    ids = self._blocks.read(first).ids
            except DamagedIndexError as error:
                logger.warning("%s", error)
                continue
            try:
                yield self._present(ids)
            except DamagedIndexError:
                yield from self._undamaged_of(ids)

    def _undamaged_of(self, ids: Int64[np.ndarray, " n"]) -> Iterator[Items]:
        for identifier in ids:
            try:
                yield self._present(np.array([identifier]))
            except DamagedIndexError as error:
                logger.warning("%s", error)

    def known(self, source: str) -> dict[str, tuple[int, str]]:
        """Id and stamp of everything that was indexed from a source, by path."""
        with self._lock, reading(self._connection, self.folder):
            return self._rows.known(source)

    def next_id(self) -> int:
        """An id that was never in use, and neither was any above it."""
        with self._lock, reading(self._connection, self.folder):
            query = "SELECT value FROM facts WHERE name = 'next_id'"
            return free_id(int(self._connection.execute(query).fetchone()[0]))

    def encoder(self) -> bytes:
        """The file of the encoder that made the codes, as it was given."""
        if "encoder" not in self._facts:
            raise InputError(f"{self.folder} holds no encoder; give codes instead of images")
        try:
            content = (self.folder / ENCODER).read_bytes()
        except OSError as error:
            raise DamagedIndexError(
                self.folder, f"cannot read {ENCODER}: {error.strerror}"
            ) from None
        if hashlib.sha256(content).hexdigest() != self._facts["encoder"]:
            raise DamagedIndexError(self.folder, f"{ENCODER} is not as written")
        return content

    def sample(self, n: int, *, seed: int) -> Items:
        """So many items chosen at random, or all of them, in the order of ids."""
        ids = self._refresh(None)[0].ids
        chosen = np.random.default_rng(seed).choice(len(ids), min(n, len(ids)), replace=False)
        return self._present(ids[np.sort(chosen)])

    def label_counts(self) -> dict[str, int]:
        """How many items have each label."""
        with self._lock, reading(self._connection, self.folder):
            return self._rows.label_counts()

    def stats(self) -> IndexStats:
        self._refresh(None)
        disk = sum(path.stat().st_size for path in self.folder.iterdir())
        return replace(self._engine.stats(), disk_bytes=disk)

    def close(self) -> None:
        with self._writing, self._lock:
            self._writer.close()
            self._connection.close()

    def _present(self, ids: Int64[np.ndarray, " n"]) -> Items:
        """Those of the items that are there, in the order asked for."""
        with self._lock, reading(self._connection, self.folder):
            found = [pair for pair in self._rows.of(ids) if pair is not None]
            there = np.array([identifier for identifier, _ in found], dtype=np.int64)
            self._blocks.check_absent(np.setdiff1d(ids, there))
            metadata = tuple(metadata for _, metadata in found)
            return Items(there, self._blocks.get(there), metadata)

    def _insert(
        self,
        ids: Int64[np.ndarray, " n"],
        codes: UInt8[np.ndarray, "n bytes"],
        metadata: Sequence[Metadata] | None,
    ) -> None:
        if len(ids) == 0:
            return
        self._writer.execute("UPDATE facts SET value = value + 1 WHERE name = 'version'")
        self._writer.execute(
            "UPDATE facts SET value = max(value, ?) WHERE name = 'next_id'",
            (min(int(ids.max()) + 1, LARGEST_ID),),
        )
        self._written_rows.add(ids, [NOTHING_KNOWN] * len(ids) if metadata is None else metadata)
        self._written_blocks.add(ids, codes)

    def _delete(self, ids: Int64[np.ndarray, " n"]) -> None:
        if len(ids):
            self._writer.execute("UPDATE facts SET value = value + 1 WHERE name = 'version'")
            self._written_rows.remove(ids)
            self._written_blocks.remove(ids)

    def _refresh(
        self, where: Where | None
    ) -> tuple[CodeTable, Int64[np.ndarray, " admitted"] | None]:
        """Bring the engine up to date: its codes, and the ids that a filter admits of them.

        The two are of one state. The engine may have a newer one as soon as this returns, for
        threads share it: whoever searches must search the table that is returned.
        """
        with self._lock, reading(self._connection, self.folder):
            query = "SELECT value FROM facts WHERE name = 'version'"
            version = self._connection.execute(query).fetchone()[0]
            if version != self._seen:
                loaded = self._blocks.table(self._engine.table, self._versions)
                self._engine.table = loaded.codes
                self._versions, self._seen = loaded.versions, version
            admitted = None if where is None else self._rows.admitted(where)
            return self._engine.table, admitted
