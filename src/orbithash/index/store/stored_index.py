"""An index on disk: one folder with codes, ids, paths, labels and the encoder of the codes.

index.sqlite         the manifest, metadata and new codes, see database.py
codes-….segment      sealed codes, mapped and not loaded, see segment.py and sealing.py
model.safetensors    the encoder
"""

import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from jaxtyping import Int64, UInt8
from numpy.typing import ArrayLike

from orbithash.codes import as_codes
from orbithash.errors import (
    DamagedIndexError,
    ReplacedIndexError,
    UnknownIdError,
)
from orbithash.files import check_regular
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
    add_under_new_ids,
    check_k,
    checked_ids,
    checked_items,
    checked_next_id,
    checked_queries,
)
from orbithash.index.code_table import CodeTable, empty_table
from orbithash.index.duplicates import DuplicateGroups, duplicate_groups
from orbithash.index.memory import MemoryIndex
from orbithash.index.parted_table import PartedTable, as_parts
from orbithash.index.store.blocks import LoadedTable
from orbithash.index.store.changes import Changes
from orbithash.index.store.checking import problems
from orbithash.index.store.copying import copy_index
from orbithash.index.store.database import (
    FILE,
    close,
    connect,
    database_format,
    file_identity,
    reading,
)
from orbithash.index.store.labels import LabelTable
from orbithash.index.store.manifest import LiveSegment, OpenSegments
from orbithash.index.store.reading import (
    check_manifest,
    folder_bytes,
    joined_table,
    read_encoder,
    stored_items,
    undamaged_of_segments,
)
from orbithash.index.store.tables import Tables, read_facts

logger = logging.getLogger(__name__)


class StoredIndex(ClosesOnExit):
    """Codes with metadata on disk, searched by one of the engines where they are mapped.

    Every change is one transaction: once the call returns, it survives a crash of the process or of
    the machine. Any number of processes may search meanwhile; each search sees the state at its
    start.
    """

    def __init__(self, folder: Path, engine: type[MemoryIndex], *, unchecked: bool = False) -> None:
        """Open an index; `unchecked` also if parts of it are missing, for `undamaged`."""
        self.folder, self._unchecked = folder, unchecked
        self._lock = threading.RLock()  # threads share the connection
        self._n_openings = 0
        self._facts: dict[str, Any] = {}
        self._open()
        self.n_bits: int = self._facts["n_bits"]
        self._engine = engine(self.n_bits)

    def _open(self) -> None:
        folder, unchecked = self.folder, self._unchecked
        check_regular(folder)
        with closing(connect(folder)) as connection:
            facts = read_facts(connection, folder)
        if self._n_openings and not same_codes(facts, self._facts):
            raise ReplacedIndexError(folder, "was replaced by one with other codes")
        n_bits = facts["n_bits"]
        files = OpenSegments(folder, n_bits)
        tables = Tables(folder, n_bits, files, unchecked=unchecked)
        try:
            with tables.reading() as segments:
                if not unchecked:
                    check_manifest(tables, segments)
            self._changes = Changes(folder, n_bits, files)
        except BaseException:
            close(tables.connection, folder)
            raise
        self._facts, self._tables, self._files = facts, tables, files
        self._connection, self._writer = tables.connection, self._changes.tables.connection
        self._loaded = LoadedTable(empty_table(n_bits), {})  # what is in blocks
        self._segments: tuple[LiveSegment, ...] = ()
        self._version: object = None  # of the database state that the engine holds
        self._n_openings += 1

    def _reopen_if_replaced(self) -> None:
        """Open the index that has taken the place of this one, if its codes mean the same."""
        if self._tables.is_in_place():
            return
        with self._lock:
            if self._tables.is_in_place():  # another thread has done it
                return
            if file_identity(self.folder / FILE) is None:
                raise ReplacedIndexError(self.folder, "was removed while it was open")
            changes, connection = self._changes, self._connection
            self._open()
            logger.warning("%s was replaced, and is open again", self.folder)
            changes.close()
            close(connection, self.folder)

    @contextmanager
    def _reading(self) -> Iterator[tuple[LiveSegment, ...]]:
        """Let all reads of the block see one state; yield its segments."""
        with self._lock:
            self._reopen_if_replaced()
            with self._tables.reading() as segments:
                yield segments

    def _current_changes(self) -> Changes:
        self._reopen_if_replaced()
        return self._changes

    def __len__(self) -> int:
        with self._reading():
            if self._tables.read_version == self._version:
                return len(self._engine)
            return self._tables.count()

    def add(
        self,
        ids: ArrayLike | None = None,
        codes: ArrayLike | None = None,
        metadata: Sequence[Metadata] | None = None,
    ) -> Int64[np.ndarray, " n"]:
        """Store items under ids that are not in use, by default the next ones; return the ids.

        Many codes without metadata are written past the database, 8 bytes each for 64 bits.
        """
        if ids is None:
            return add_under_new_ids(self, codes, metadata)
        ids, codes = checked_items(ids, codes, metadata, n_bits=self.n_bits)
        self._current_changes().add(ids, codes, metadata)
        return ids

    def add_codes(
        self,
        n: int,
        batches: Iterable[UInt8[np.ndarray, "..."]],
        *,
        ids: Int64[np.ndarray, " n"] | None = None,
        file: tuple[str, str] | None = None,
    ) -> int:
        """Store n codes without metadata that arrive in batches; return the first id.

        They are never all in memory. They are stored together: a search finds all of them or none.
        By default they get the next ids; given ids ascend. `file` is the name and the stamp of the
        file that they are from, for `known_files`.
        """
        reserved = self._current_changes().reserve(n) if ids is None else ids
        if n == 0:
            return int(self.next_id())
        checked = (as_codes(codes, self.n_bits) for codes in batches)
        self._current_changes().add_segment(reserved, checked, None if file is None else (*file, n))
        return int(np.asarray(reserved[:1])[0])

    def known_files(self) -> dict[str, tuple[str, int]]:
        """Return stamp and number of codes of every file that `add_codes` has stored, by name."""
        with self._reading():
            if database_format(self._connection) < 3:
                return {}
            rows = self._connection.execute(
                "SELECT name, stamp, n_codes FROM sources WHERE stamp IS NOT NULL"
            )
            return {name: (stamp, count) for name, stamp, count in rows}

    def update(
        self, ids: ArrayLike, codes: ArrayLike, metadata: Sequence[Metadata] | None = None
    ) -> None:
        """Store items, replacing those with the same ids."""
        self._current_changes().update(
            *checked_items(ids, codes, metadata, n_bits=self.n_bits), metadata
        )

    def remove(self, ids: ArrayLike) -> int:
        """Remove items and return how many there were; unknown ids are ignored."""
        return self._current_changes().remove(np.unique(checked_ids(ids)))

    def compact(self) -> None:
        """Write all codes into one segment, without items that were removed."""
        self._current_changes().compact()

    def check(self) -> list[str]:
        """Read and verify everything; return what is damaged, in words that name it."""
        with self._reading() as segments:
            found = list(problems(self._tables, segments))
        try:
            if "encoder" in self._facts:
                self.encoder()
        except DamagedIndexError as error:
            found.append(error.reason)
        return found

    def copy_to(self, folder: str | Path) -> None:
        """Write a copy of one state of the index into a new folder, while others may change it."""
        copy_index(self._tables, self._lock, Path(folder))

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
        return duplicate_groups(as_parts(table).whole() if admitted is None else admitted, radius)

    def iterate(self, batch_size: int = 4096) -> Iterator[Items]:
        """Iterate over all items in the order of ids; may miss items that are added meanwhile."""
        for ids in as_parts(self._refresh(None)[0]).id_batches(batch_size):
            yield self._stored_items(ids)

    def undamaged(self) -> Iterator[Items]:
        """Iterate over the intact items of a damaged index; the others are logged."""
        with self._reading() as segments:
            firsts = self._tables.blocks.unchecked_firsts()
        yield from undamaged_of_segments(segments, self._undamaged_items)
        for first in firsts:
            try:
                with self._reading():
                    ids = self._tables.blocks.read(first).ids
            except DamagedIndexError as error:
                logger.warning("%s", error)
                continue
            yield from self._undamaged_items(ids)

    def _undamaged_items(self, ids: Int64[np.ndarray, " n"]) -> Iterator[Items]:
        try:
            yield self._stored_items(ids)
        except DamagedIndexError as error:
            if len(ids) == 1:
                logger.warning("%s", error)
                return
            for identifier in ids:
                yield from self._undamaged_items(np.array([identifier]))

    def known(self, source: str) -> dict[str, tuple[int, str]]:
        """Return id and stamp of every item that was indexed from a source, by path."""
        with self._reading():
            return self._tables.rows.known(source)

    def next_id(self) -> int:
        """Return an id above all ids that were ever in use."""
        with self._reading():
            return checked_next_id(int(self._tables.fact("next_id")))

    def encoder(self) -> bytes:
        """Return the file of the encoder that computed the codes."""
        return read_encoder(self.folder, self._facts)

    def count(self, where: Where) -> int:
        """Return the number of items that a filter admits."""
        if where.admits(NO_METADATA):
            return len(self)
        with self._reading():
            return self._tables.rows.count(where)

    def sample(self, n: int, *, seed: int, where: Where | None = None) -> Items:
        """Return n random items, or all if there are fewer, in the order of ids."""
        table, admitted = self._refresh(where)
        count = len(table if admitted is None else admitted)
        ranks = np.random.default_rng(seed).choice(count, min(n, count), replace=False)
        ranks = np.sort(ranks)
        if admitted is not None:
            return self._stored_items(admitted[ranks])
        return self._stored_items(as_parts(table).ids_of_ranks(ranks))

    def label_counts(self) -> dict[str, int]:
        """Return the number of items with each label."""
        # Through a connection of its own: this takes a while if there are many labels.
        self._reopen_if_replaced()
        with closing(connect(self.folder)) as connection, reading(connection, self.folder):
            return LabelTable(connection, self.folder).counts()

    def version(self) -> int:
        """Return a number that differs after every change."""
        with self._reading():
            return self._n_openings << 40 | self._tables.read_version

    def stats(self) -> IndexStats:
        self._refresh(None)
        return replace(self._engine.stats(), disk_bytes=folder_bytes(self.folder))

    def close(self) -> None:
        self._changes.close()
        with self._lock:
            close(self._connection, self.folder)

    def _admitted(self, where: Where | None) -> tuple[CodeTable | PartedTable, CodeTable | None]:
        """Update the engine; return its codes, and those that a filter admits."""
        table, ids = self._refresh(where)
        for live in self._segments:
            live.segment.verify()
        return table, None if ids is None else as_parts(table).among(ids)

    def _refresh(
        self, where: Where | None
    ) -> tuple[CodeTable | PartedTable, Int64[np.ndarray, " admitted"] | None]:
        """Update the engine; return its codes, and the ids that a filter admits.

        Both are of one state. Threads share the engine, which may have a newer state as soon as
        this returns: search the table that is returned.
        """
        with self._reading() as segments:
            version = self._tables.read_version
            if version != self._version:
                self._loaded = self._tables.blocks.table(self._loaded)
                table = joined_table(self._loaded.codes, segments)
                # Whatever an engine does with it, a table of several parts does too.
                self._engine.table = cast(CodeTable, table)
                self._segments, self._version = segments, version
                self._files.keep(live.segment.info.file for live in segments)
            filters = where is not None and not where.admits(NO_METADATA)
            admitted = self._tables.rows.admitted(where) if where and filters else None
            return self._engine.table, admitted

    def _stored_items(self, ids: Int64[np.ndarray, " n"]) -> Items:
        """Return those of the items that are stored, in this order."""
        with self._reading() as segments:
            return stored_items(self._tables, segments, self._loaded_table(), ids)

    def _loaded_table(self) -> CodeTable | None:
        """Return what is in blocks, if it is loaded in this state."""
        return self._loaded.codes if self._tables.read_version == self._version else None


def same_codes(facts: dict[str, Any], others: dict[str, Any]) -> bool:
    """Return whether codes of two indexes are of one length and from one encoder."""
    return all(facts.get(name) == others.get(name) for name in ("n_bits", "encoder"))
