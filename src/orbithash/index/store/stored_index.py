"""An index on disk: one folder with codes, ids, paths, labels and the encoder of the codes.

index.sqlite        codes and metadata, see database.py
model.safetensors   the encoder
"""

import errno
import hashlib
import logging
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt8
from numpy.typing import ArrayLike

from orbithash.codes import MAX_BITS, MIN_BITS, check_n_bits
from orbithash.errors import (
    DamagedIndexError,
    HashingError,
    IdInUseError,
    InputError,
    StorageError,
    UnknownIdError,
)
from orbithash.files import DISK_FAILURES, whole_folder
from orbithash.index.base import (
    NO_METADATA,
    Ball,
    ClosesOnExit,
    IndexStats,
    Items,
    Metadata,
    Neighbours,
    Where,
)
from orbithash.index.checks import (
    LARGEST_ID,
    add_under_new_ids,
    check_k,
    checked_ids,
    checked_items,
    checked_next_id,
    checked_queries,
)
from orbithash.index.code_table import CodeTable
from orbithash.index.duplicates import DuplicateGroups, duplicate_groups
from orbithash.index.memory import MemoryIndex
from orbithash.index.store.blocks import CodeBlocks
from orbithash.index.store.database import connect, create_database, reading, writing
from orbithash.index.store.rows import MetadataRows

logger = logging.getLogger(__name__)


class StoredIndex(ClosesOnExit):
    """Codes with metadata on disk, searched in memory by one of the engines.

    Every change is one transaction: once the call returns, it survives a crash of the process or of
    the machine. Any number of processes may search meanwhile; each search sees the state at its
    start.
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
        self._blocks = CodeBlocks(self._connection, folder, self.n_bits)
        self._rows = MetadataRows(self._connection, folder)
        # A second connection, because a change may wait long for other processes, and threads that
        # search must not wait with it.
        self._writer = connect(folder)
        self._writing = threading.Lock()
        self._writer_blocks = CodeBlocks(self._writer, folder, self.n_bits)
        self._writer_rows = MetadataRows(self._writer, folder)
        self._engine = engine(self.n_bits)
        self._block_versions: dict[int, int] = {}  # of the blocks that the engine holds
        self._version: object = None  # of the database state that the engine holds

    def __len__(self) -> int:
        with self._lock, reading(self._connection, self.folder):
            return self._blocks.count()

    def add(
        self,
        ids: ArrayLike | None = None,
        codes: ArrayLike | None = None,
        metadata: Sequence[Metadata] | None = None,
    ) -> Int64[np.ndarray, " n"]:
        """Store items under ids that are not in use, by default the next ones; return the ids."""
        if ids is None:
            return add_under_new_ids(self, codes, metadata)
        ids, codes = checked_items(ids, codes, metadata, n_bits=self.n_bits)
        with self._writing, writing(self._writer, self.folder):
            if used := self._writer_rows.stored(ids):
                raise IdInUseError(used[0])
            self._insert(ids, codes, metadata)
        return ids

    def update(
        self, ids: ArrayLike, codes: ArrayLike, metadata: Sequence[Metadata] | None = None
    ) -> None:
        """Store items, replacing those with the same ids."""
        ids, codes = checked_items(ids, codes, metadata, n_bits=self.n_bits)
        with self._writing, writing(self._writer, self.folder):
            used = np.array(self._writer_rows.stored(ids), dtype=np.int64)
            self._delete(used)
            self._insert(ids, codes, metadata)

    def remove(self, ids: ArrayLike) -> int:
        """Remove items and return how many there were; unknown ids are ignored."""
        ids = np.unique(checked_ids(ids))
        with self._writing, writing(self._writer, self.folder):
            used = np.array(self._writer_rows.stored(ids), dtype=np.int64)
            self._delete(used)
        return len(used)

    def get(self, ids: ArrayLike) -> Items:
        """Return these items, in this order."""
        ids = checked_ids(ids)
        items = self._stored_items(ids)
        if len(items) < len(ids):
            raise UnknownIdError(int(np.setdiff1d(ids, items.ids)[0]))
        return items

    def search(self, queries: ArrayLike, k: int, where: Where | None = None) -> Neighbours:
        """Return the k nearest items of each query; fewer columns if fewer are admitted.

        Codes are compared by Hamming distance, embeddings (floats) by asymmetric distance.
        """
        queries = checked_queries(queries, self.n_bits)
        check_k(k)
        table, admitted = self._admitted(where)
        searcher = self._engine.searcher(table) if admitted is None else admitted
        if queries.dtype == np.uint8:
            return searcher.nearest(queries, k)
        return searcher.nearest_asymmetric(queries, k)

    def within(
        self, queries: ArrayLike, radius: int, where: Where | None = None, k: int | None = None
    ) -> list[Ball]:
        """Return the items at most `radius` bits away from each query, at most the k nearest.

        The radius counts bits, also for embeddings; these order the items.
        """
        table, admitted = self._admitted(where)
        return self._engine.table_within(table, queries, radius, k, admitted)

    def duplicates(self, radius: int, where: Where | None = None) -> DuplicateGroups:
        """Return the groups of items that steps of at most `radius` bits connect; exact."""
        table, admitted = self._admitted(where)
        return duplicate_groups(table if admitted is None else admitted, radius)

    def iterate(self, batch_size: int = 4096) -> Iterator[Items]:
        """Iterate over all items in the order of ids; may miss items that are added meanwhile."""
        ids = self._refresh(None)[0].ids
        for start in range(0, len(ids), batch_size):
            yield self._stored_items(ids[start : start + batch_size])

    def undamaged(self) -> Iterator[Items]:
        """Iterate over the intact items of a damaged index; the others are logged."""
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
                yield self._stored_items(ids)
            except DamagedIndexError:
                yield from self._undamaged_items(ids)

    def _undamaged_items(self, ids: Int64[np.ndarray, " n"]) -> Iterator[Items]:
        for identifier in ids:
            try:
                yield self._stored_items(np.array([identifier]))
            except DamagedIndexError as error:
                logger.warning("%s", error)

    def known(self, source: str) -> dict[str, tuple[int, str]]:
        """Return id and stamp of every item that was indexed from a source, by path."""
        with self._lock, reading(self._connection, self.folder):
            return self._rows.known(source)

    def next_id(self) -> int:
        """Return an id above all ids that were ever in use."""
        with self._lock, reading(self._connection, self.folder):
            query = "SELECT value FROM facts WHERE name = 'next_id'"
            return checked_next_id(int(self._connection.execute(query).fetchone()[0]))

    def encoder(self) -> bytes:
        """Return the file of the encoder that computed the codes."""
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

    def count(self, where: Where) -> int:
        """Return the number of items that a filter admits."""
        with self._lock, reading(self._connection, self.folder):
            return self._rows.count(where)

    def sample(self, n: int, *, seed: int, where: Where | None = None) -> Items:
        """Return n random items, or all if there are fewer, in the order of ids."""
        table, admitted = self._refresh(where)
        ids = table.ids if admitted is None else admitted
        positions = np.random.default_rng(seed).choice(len(ids), min(n, len(ids)), replace=False)
        return self._stored_items(ids[np.sort(positions)])

    def label_counts(self) -> dict[str, int]:
        """Return the number of items with each label."""
        with self._lock, reading(self._connection, self.folder):
            return self._rows.label_counts()

    def version(self) -> int:
        """Return a number that differs after every change."""
        with self._lock, reading(self._connection, self.folder):
            return self._read_version()

    def stats(self) -> IndexStats:
        self._refresh(None)
        disk = sum(path.stat().st_size for path in self.folder.iterdir())
        return replace(self._engine.stats(), disk_bytes=disk)

    def close(self) -> None:
        with self._writing, self._lock:
            self._writer.close()
            self._connection.close()

    def _admitted(self, where: Where | None) -> tuple[CodeTable, CodeTable | None]:
        """Update the engine; return its codes, and those that a filter admits."""
        table, ids = self._refresh(where)
        return table, None if ids is None else table.among(ids)

    def _refresh(
        self, where: Where | None
    ) -> tuple[CodeTable, Int64[np.ndarray, " admitted"] | None]:
        """Update the engine; return its codes, and the ids that a filter admits.

        Both are of one state. Threads share the engine, which may have a newer state as soon as
        this returns: search the table that is returned.
        """
        with self._lock, reading(self._connection, self.folder):
            version = self._read_version()
            if version != self._version:
                loaded = self._blocks.table(self._engine.table, self._block_versions)
                self._engine.table = loaded.codes
                self._block_versions, self._version = loaded.versions, version
            admitted = None if where is None else self._rows.admitted(where)
            return self._engine.table, admitted

    def _read_version(self) -> int:
        query = "SELECT value FROM facts WHERE name = 'version'"
        return int(self._connection.execute(query).fetchone()[0])

    def _stored_items(self, ids: Int64[np.ndarray, " n"]) -> Items:
        """Return those of the items that are stored, in this order."""
        with self._lock, reading(self._connection, self.folder):
            found = [pair for pair in self._rows.get(ids) if pair is not None]
            stored = np.array([identifier for identifier, _ in found], dtype=np.int64)
            self._blocks.check_absent(np.setdiff1d(ids, stored))
            metadata = tuple(metadata for _, metadata in found)
            return Items(stored, self._blocks.get(stored), metadata)

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
        self._writer_rows.add(ids, [NO_METADATA] * len(ids) if metadata is None else metadata)
        self._writer_blocks.add(ids, codes)

    def _delete(self, ids: Int64[np.ndarray, " n"]) -> None:
        if len(ids):
            self._writer.execute("UPDATE facts SET value = value + 1 WHERE name = 'version'")
            self._writer_rows.remove(ids)
            self._writer_blocks.remove(ids)


def read_facts(connection: sqlite3.Connection, folder: Path) -> dict[str, Any]:
    with reading(connection, folder):
        facts = dict(connection.execute("SELECT name, value FROM facts").fetchall())
    for name in ("n_bits", "next_id", "version"):
        if not isinstance(facts.get(name), int):
            raise DamagedIndexError(folder, f"its {name} is not as written")
    if not MIN_BITS <= facts["n_bits"] <= MAX_BITS:
        raise DamagedIndexError(folder, f"{facts['n_bits']} is not a valid number of bits")
    return facts


ENCODER = "model.safetensors"  # the name it has in a run, so that orbithash.load takes either


def create_store(folder: Path, n_bits: int, *, encoder: bytes | None = None) -> None:
    """Create an empty index; `encoder` is the content of a run's encoder file."""
    check_n_bits(n_bits)
    folder = folder.absolute()
    try:
        if folder.exists():
            raise folder_exists(folder)
        with whole_folder(folder) as new:
            write_store(new, n_bits, encoder)
    except HashingError:
        raise
    except OSError as error:
        raise creation_error(folder, error) from None


def write_store(new: Path, n_bits: int, encoder: bytes | None) -> None:
    """Write the files of an empty index into a new folder."""
    facts: dict[str, Any] = {"n_bits": int(n_bits), "next_id": 0, "version": 0}
    if encoder is not None:
        (new / ENCODER).write_bytes(encoder)
        facts["encoder"] = hashlib.sha256(encoder).hexdigest()
    create_database(new)
    with closing(connect(new)) as connection, writing(connection, new):
        connection.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())


def creation_error(folder: Path, error: OSError) -> HashingError:
    """Translate an error of the file system into ours."""
    # Another process has created it meanwhile. If its parent is a file, it does not exist.
    if error.errno in (errno.EEXIST, errno.ENOTEMPTY) and folder.exists():
        return folder_exists(folder)
    if error.errno in DISK_FAILURES:
        return StorageError(
            f"cannot write {folder}: {error.strerror}; no partial index is left: free some space, "
            "or check the disk, and try again"
        )
    return InputError(f"cannot write {folder}: {error.strerror}; choose another name")


def folder_exists(folder: Path) -> InputError:
    return InputError(f"{folder} exists; open it, or give the new index another name")
