"""Sealing: codes move from the database into segments, and segments are merged.

A segment is written under another name, forced to disk, renamed, and then one transaction enters it
into the manifest and removes what it replaces. Files that no manifest names are left by processes
that were stopped, and are removed by the next sealing. A process that makes or removes segments
holds a lock, so that no file is taken for such a leftover.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int64, UInt8, UInt64

from orbithash.errors import IdInUseError, InputError, StorageError
from orbithash.files import flush, whole_file
from orbithash.index.packed_ids import IdRange, merged_runs
from orbithash.index.parted_table import NO_IDS
from orbithash.index.store.locks import SEGMENTS, locked
from orbithash.index.store.manifest import LiveSegment
from orbithash.index.store.segment import ALL, NONE, SOME, SegmentInfo, SegmentWriter
from orbithash.index.store.tables import Tables
from orbithash.kernels.plain_search import as_words

PREFIX, SUFFIX = "codes-", ".segment"
SEAL_AT = 1 << 18  # codes in blocks: 4 MB that each process holds
MAX_SEALED = 1 << 22  # codes in one transaction
TIER = 8  # so many segments of about one size are merged: each code is written log8(n) times
MERGED = 1 << 18  # codes of each segment in memory while merging
MAX_REMOVED = 4  # a segment is written again when one of so many of its items is removed
CHECKED = 1 << 22  # ids that are compared with those in use at once
LONG_WAIT = 3600.0  # seconds for others who write segments, such as a billion codes

Columns = tuple[Int64[np.ndarray, " n"], UInt64[np.ndarray, "words n"], Bool[np.ndarray, " n"]]


class StoppedError(Exception):
    """The index is closed: a merge that has begun is given up."""


class Sealing:
    """Moves codes of one index into segments. `stopped` is asked between steps."""

    def __init__(
        self, tables: Tables, n_bits: int, stopped: Callable[[], bool] = lambda: False
    ) -> None:
        self._tables, self._folder, self._n_bits = tables, tables.folder, n_bits
        self._stopped = stopped

    @contextmanager
    def alone(self, *, wait: float) -> Iterator[bool]:
        """Hold the lock of those who make segments, and remove what stopped ones have left."""
        with locked(self._folder, SEGMENTS, wait=wait) as is_ours:
            if is_ours:
                self._remove_unnamed()
            try:
                yield is_ours
            except BaseException:
                if is_ours:
                    with suppress(Exception):  # the first error matters
                        self._remove_unnamed()
                raise

    @contextmanager
    def alone_or_fail(self, *, wait: float) -> Iterator[None]:
        """Hold that lock; raise if others have held it for longer than `wait` seconds."""
        with self.alone(wait=wait) as is_ours:
            if not is_ours:
                raise StorageError(
                    f"another process has been writing codes to {self._folder} for {wait:.0f} s; "
                    "nothing was changed: try again"
                )
            yield

    def run(self, *, everything: bool, wait: float = 0.0) -> None:
        """Seal the blocks if they are many, and merge segments of one size; or all into one."""
        with (self.alone_or_fail if everything else self.alone)(wait=wait) as is_ours:
            # Without waiting: another process that holds the lock does the same.
            if everything or is_ours:
                with suppress(StoppedError):
                    self._run(everything=everything)

    def _run(self, *, everything: bool) -> None:
        least = 1 if everything else SEAL_AT
        while self._count_in_blocks() >= least:
            self._seal_blocks()
        while True:
            with self._tables.reading() as segments:
                chosen = all_into_one(segments) if everything else to_merge(segments)
            if not chosen:
                return
            self._merge(chosen)

    def add(
        self,
        ids: IdRange | Int64[np.ndarray, " n"],
        batches: Iterable[UInt8[np.ndarray, "..."]],
        file: tuple[str, str, int] | None = None,
    ) -> None:
        """Store codes without metadata under ascending ids; the caller holds the lock.

        `file` is the name, the stamp and the number of codes of the file that they are from.
        """

        def columns() -> Iterator[Columns]:
            start = 0
            for codes in batches:
                stop = start + len(codes)
                self._check_stopped()
                part = ids[start:stop]
                yield part, as_words(codes), np.zeros(len(codes), dtype=np.bool_)
                start = stop
            if start != len(ids):
                raise InputError(f"got {start} codes for {len(ids)} ids; give one id for each")

        info, tables = self._write(columns(), len(ids), NONE), self._tables
        with tables.writing():
            for start in range(0, len(ids), CHECKED):
                part = np.asarray(ids[start : start + CHECKED], dtype=np.int64)
                if len(used := tables.stored(part)):
                    raise IdInUseError(int(used[0]))
            tables.manifest.add(info, 0, NO_IDS)
            tables.use_ids_up_to(info.last)
            tables.change_version()
            if file is not None:
                tables.connection.execute(
                    "INSERT INTO sources (name, stamp, n_codes) VALUES (?, ?, ?) "
                    "ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp, "
                    "n_codes = excluded.n_codes",
                    file,
                )

    def _seal_blocks(self) -> None:
        """Move up to `MAX_SEALED` codes from blocks into a segment, in one transaction."""
        tables = self._tables
        with tables.writing():
            firsts = tables.blocks.firsts()
            blocks, count = [], 0
            for first in firsts.tolist():
                blocks.append(tables.blocks.read(first))
                count += len(blocks[-1].ids)
                if count >= MAX_SEALED:
                    break
            ids = np.concatenate([block.ids for block in blocks])
            codes = np.concatenate([block.codes for block in blocks])
            tables.rows.remove_empty(int(ids[0]), int(ids[-1]))
            described = np.isin(ids, tables.rows.described(int(ids[0]), int(ids[-1])))
            kind = kind_of(int(described.sum()), count)
            info = self._write(iter([(ids, as_words(codes), described)]), count, kind)
            tables.blocks.remove_first(blocks)
            tables.manifest.add(info, int(described.sum()), NO_IDS)
            tables.change_version()

    def _merge(self, chosen: Sequence[LiveSegment]) -> None:
        """Write segments into one without their removed items, and enter it in their place."""
        tables, count = self._tables, sum(map(len, chosen))
        described = [live.segment.described for live in chosen]
        kind = described[0] if len(set(described)) == 1 else SOME
        counted = [0]
        info = None
        if count:
            info = self._write(self._merged(chosen, counted), count, kind)
        with tables.writing():
            now = {live.number: live for live in tables.segments()}
            late = [
                NO_IDS,
                *(
                    live.segment.table.ids[
                        np.setdiff1d(now[live.number].removed, live.removed, assume_unique=True)
                    ]
                    for live in chosen
                ),
            ]
            tables.manifest.drop(live.number for live in chosen)
            if info is not None:
                positions = self._positions(info, np.sort(np.concatenate(late)))
                tables.manifest.add(info, counted[0], positions)
            tables.change_version()
        for live in chosen:
            (self._folder / live.segment.info.file).unlink(missing_ok=True)

    def _merged(self, chosen: Sequence[LiveSegment], counted: list[int]) -> Iterator[Columns]:
        """Yield the items of segments in the order of ids; count those that have metadata."""
        for live in chosen:
            live.segment.verify()
        for slices in merged_runs([live.segment.table.ids for live in chosen], MERGED):
            self._check_stopped()
            parts = []
            for live, run in zip(chosen, slices, strict=True):
                if run.start == run.stop:
                    continue
                positions = np.arange(run.start, run.stop)
                low, high = np.searchsorted(live.removed, (run.start, run.stop))
                positions = np.delete(positions, live.removed[low:high] - run.start)
                table = live.segment.table
                words = table.words[:, run] if low == high else table.words[:, positions]
                described = live.segment.are_described(positions)
                parts.append((table.ids[positions], words, described))
            if not parts:
                continue
            ids, words, described = parts[0]
            if len(parts) > 1:
                ids = np.concatenate([part[0] for part in parts])
                order = np.argsort(ids)
                ids = ids[order]
                words = np.concatenate([part[1] for part in parts], axis=1)[:, order]
                described = np.concatenate([part[2] for part in parts])[order]
            counted[0] += int(described.sum())
            if len(ids):
                yield ids, words, described

    def _write(self, columns: Iterator[Columns], count: int, described: str) -> SegmentInfo:
        """Write a segment whole, and force it to disk under its final name."""
        path = self._folder / f"{PREFIX}{secrets.token_hex(8)}{SUFFIX}"
        first = last = 0
        with whole_file(path) as file:
            writer = SegmentWriter(file, self._n_bits, count, described)
            for number, (ids, words, is_described) in enumerate(columns):
                first = int(ids[0]) if number == 0 else first
                last = int(ids[-1])
                writer.write(ids, words, is_described)
            ends = writer.finish()
        flush(self._folder, files=False)
        return SegmentInfo(path.name, count, first, last, ends["length"], ends["checksum"])

    def _positions(
        self, info: SegmentInfo, ids: Int64[np.ndarray, " n"]
    ) -> Int64[np.ndarray, " n"]:
        if len(ids) == 0:
            return ids
        return np.sort(self._tables.manifest.open(info).find(ids)[0])

    def _check_stopped(self) -> None:
        if self._stopped():
            raise StoppedError

    def _count_in_blocks(self) -> int:
        with self._tables.reading():
            return self._tables.blocks.count()

    def _remove_unnamed(self) -> None:
        with self._tables.reading():
            named = self._tables.manifest.files()
        for path in leftovers(self._folder, named):
            path.unlink(missing_ok=True)


def leftovers(folder: Path, named: set[str]) -> list[Path]:
    """Return the files of segments that no manifest names, finished or not."""
    finished = [path for path in folder.glob(f"{PREFIX}*{SUFFIX}") if path.name not in named]
    return [*finished, *folder.glob(f".{PREFIX}*{SUFFIX}.*")]


def to_merge(segments: Sequence[LiveSegment]) -> list[LiveSegment]:
    """Return segments to merge: many of about one size, or one with many removed items."""
    by_size: dict[int, list[LiveSegment]] = {}
    for live in segments:
        if len(live.removed) * MAX_REMOVED > len(live.segment):
            return [live]
        size = (len(live) // SEAL_AT).bit_length() // (TIER.bit_length() - 1)
        by_size.setdefault(size, []).append(live)
    return next((group for group in by_size.values() if len(group) >= TIER), [])


def all_into_one(segments: Sequence[LiveSegment]) -> list[LiveSegment]:
    if len(segments) > 1 or any(len(live.removed) for live in segments):
        return list(segments)
    return []


def kind_of(n_described: int, count: int) -> str:
    return NONE if n_described == 0 else ALL if n_described == count else SOME
