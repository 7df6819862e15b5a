"""Segments: immutable files of codes in the layout the kernels read, mapped and never loaded.

header      one page: JSON, whose checksum is in the manifest (see manifest.py)
words       uint64 (words, n), the whole table of codes, as `as_words` returns it
described   one bit for each code, whether it has metadata; only where some have and some have not
offsets     packed ids (see packed_ids.py); none where the ids are a range
directory   bases, widths and starts of the runs of ids
checksums   of each piece: of 8,192 codes, each row of words, the ids and the bits

Each section starts on a page of its own. All processes that map a file share its pages.

Opening reads the header only. A piece is verified when it is first read, by each process; the
checksums and the directory, before anything else.
"""

import json
import mmap
import os
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Bool, Int64, UInt64

from orbithash.codes import code_bytes
from orbithash.errors import DamagedIndexError
from orbithash.index.code_table import CodeTable
from orbithash.index.packed_ids import RUN, IdRange, Ids, PackedIds, find_ids, pack_run
from orbithash.kernels.plain_checksums import run_checksums_reference
from orbithash.kernels.plain_search import WORD_BYTES

PAGE = 4096
FEW_RUNS = 32  # are verified by numpy in a few milliseconds; loading numba would take longer
MANY_RUNS = 4096  # are verified at once
SECTIONS = ("words", "described", "offsets", "directory", "checksums")
MAGIC = "orbithash segment 1"
NONE, ALL, SOME = "none", "all", "some"  # of the items have metadata


@dataclass(frozen=True)
class SegmentInfo:
    """What the manifest holds of a segment."""

    file: str
    count: int
    first: int  # id
    last: int
    length: int  # bytes of the file
    checksum: int  # of the header


class SegmentWriter:
    """Writes a segment from batches in the order of ids; `finish` returns what the manifest needs.

    The caller syncs the file and gives it its name (`orbithash.files.whole_file`).
    """

    def __init__(self, file: BinaryIO, n_bits: int, count: int, described: str) -> None:
        self._file, self._n_bits, self._count, self._described = file, n_bits, count, described
        self._n_words = -(-code_bytes(n_bits) // WORD_BYTES)
        n_runs = -(-count // RUN)
        self._starts = {"words": PAGE}
        self._starts["described"] = page_after(PAGE + WORD_BYTES * self._n_words * count)
        n_bytes = -(-count // 8) if described == SOME else 0
        self._starts["offsets"] = page_after(self._starts["described"] + n_bytes)
        self._checksums = np.zeros((n_runs, self._n_words + 2), dtype="<u8")
        self._directory = np.zeros((3, n_runs), dtype="<i8")
        self._written = self._offset_bytes = 0
        self._waiting: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def write(
        self,
        ids: Int64[np.ndarray, " n"],
        words: UInt64[np.ndarray, "words n"],
        described: Bool[np.ndarray, " n"],
    ) -> None:
        """Add items, whose ids are above those before."""
        self._waiting.append((ids, words, described))
        n = sum(len(each) for each, _, _ in self._waiting)
        is_last = self._written + n == self._count
        if n < RUN and not is_last:
            return
        columns = list(zip(*self._waiting, strict=True))
        joined = [
            batch[0] if len(batch) == 1 else np.concatenate(batch, axis=-1) for batch in columns
        ]
        n_whole = n if is_last else n // RUN * RUN
        self._write_runs(*(array[..., :n_whole] for array in joined))
        self._waiting = [tuple(array[..., n_whole:] for array in joined)]  # type: ignore[list-item]

    def finish(self) -> dict[str, Any]:
        """Write the end and the header of the file; return its header, length and checksum."""
        assert self._written == self._count
        bases, widths, _ = self._directory
        is_range = not widths.any() and np.all(bases == bases[:1] + RUN * np.arange(len(bases)))
        parts = {
            "words": WORD_BYTES * self._n_words * self._count,
            "described": -(-self._count // 8) if self._described == SOME else 0,
            "offsets": 0 if is_range else self._offset_bytes,
        }
        directory = b"" if is_range else self._directory.tobytes()
        checksums = self._checksums.tobytes()
        self._starts["directory"] = page_after(self._starts["offsets"] + parts["offsets"])
        self._starts["checksums"] = page_after(self._starts["directory"] + len(directory))
        self._put("directory", 0, directory)
        self._put("checksums", 0, checksums)
        parts |= {"directory": len(directory), "checksums": len(checksums)}
        header = {
            "format": MAGIC,
            "n_bits": self._n_bits,
            "count": self._count,
            "first": int(bases[0]),
            "ids": "range" if is_range else "packed",
            "described": self._described,
            "sections": {name: [self._starts[name], parts[name]] for name in SECTIONS},
            "directory_checksum": zlib.crc32(directory),
            "checksums_checksum": zlib.crc32(checksums),
        }
        page = json.dumps(header).encode().ljust(PAGE, b"\n")
        self._file.seek(0)
        self._file.write(page)
        length = self._starts["checksums"] + len(checksums)
        return {"length": length, "checksum": zlib.crc32(page)}

    def _write_runs(
        self,
        ids: Int64[np.ndarray, " n"],
        words: UInt64[np.ndarray, "words n"],
        described: Bool[np.ndarray, " n"],
    ) -> None:
        first_run = self._written // RUN
        for row in range(self._n_words):
            content = np.ascontiguousarray(words[row], dtype="<u8").view(np.uint8).data
            self._put("words", WORD_BYTES * (row * self._count + self._written), content)
            sums = word_checksums(words[row])
            self._checksums[first_run : first_run + len(sums), row] = sums
        packed: list[bytes] = []
        for run, start in enumerate(range(0, len(ids), RUN), first_run):
            base, width, offsets = pack_run(ids[start : start + RUN])
            self._directory[:, run] = (
                base,
                width,
                self._offset_bytes + sum(len(each) for each in packed),
            )
            self._checksums[run, self._n_words] = zlib.crc32(offsets)
            packed.append(offsets)
        if offsets := b"".join(packed):
            self._put("offsets", self._offset_bytes, offsets)
            self._offset_bytes += len(offsets)
        if self._described == SOME:
            bits = np.packbits(described).data
            self._put("described", self._written // 8, bits)
            for run, start in enumerate(range(0, len(bits), RUN // 8), first_run):
                self._checksums[run, self._n_words + 1] = zlib.crc32(bits[start : start + RUN // 8])
        self._written += len(ids)

    def _put(self, section: str, offset: int, content: bytes | memoryview) -> None:
        self._file.seek(self._starts[section] + offset)
        self._file.write(content)


class Segment:
    """An open segment. `table` must only be read where `verify` or `verify_at` has been called."""

    def __init__(self, folder: Path, info: SegmentInfo, n_bits: int) -> None:
        self.info, self._folder = info, folder
        with (folder / info.file).open("rb") as file:
            length = os.fstat(file.fileno()).st_size
            if length != info.length:
                raise self._damaged(f"has {length} bytes instead of {info.length}")
            page = file.read(PAGE)
            if zlib.crc32(page) != info.checksum:
                raise self._damaged("has a header that is not as written")
            header = json.loads(page)
            if (header["format"], header["n_bits"], header["count"], header["first"]) != (
                *(MAGIC, n_bits),
                *(info.count, info.first),
            ):
                raise self._damaged("does not fit the index")
            self._mapped = np.asarray(MappedFile(file))
        self._sections = header["sections"]
        self._header, self.described = header, header["described"]
        self._n_words = -(-code_bytes(n_bits) // WORD_BYTES)
        words = self._section("words").view("<u8").reshape(self._n_words, info.count)
        self.n_runs = -(-info.count // RUN)
        self._checksums = self._section("checksums").view("<u8").reshape(self.n_runs, -1)
        self.table = CodeTable(n_bits, self._ids(), words)
        self._verified = np.zeros(self.n_runs, dtype=np.bool_)
        self._has_checksums = self._is_whole = False
        self._verifying = threading.Lock()

    def __len__(self) -> int:
        return self.info.count

    def verify(self) -> None:
        """Raise unless the whole file is as written; what was verified before is not read again."""
        if self._is_whole:
            return
        with self._verifying:
            self._verify_checksums()
            for start in range(0, self.n_runs, MANY_RUNS):
                runs = np.arange(start, min(start + MANY_RUNS, self.n_runs))
                if not self._verified[runs].all():
                    self._verify_runs(runs)
            self._is_whole = True

    def verify_at(self, positions: Int64[np.ndarray, " n"]) -> None:
        """Raise unless what these positions need is as written."""
        if not self._is_whole:
            self._verify_checksums()
            runs = np.unique(positions // RUN)
            for run in runs[~self._verified[runs]]:
                self._verify_runs(np.array([run]))

    def find(
        self, ids: Int64[np.ndarray, " m"]
    ) -> tuple[Int64[np.ndarray, " m"], Bool[np.ndarray, " m"]]:
        """Return the positions of ids and which are here, verified."""
        inside = (ids >= self.info.first) & (ids <= self.info.last)
        positions, is_stored = np.zeros(len(ids), np.int64), np.zeros(len(ids), np.bool_)
        if inside.any():
            if isinstance(self.table.ids, PackedIds):
                self._verify_checksums()
                runs = np.searchsorted(self.table.ids.bases, ids[inside], side="right") - 1
                self.verify_at(np.maximum(runs, 0) * RUN)
            positions[inside], is_stored[inside] = find_ids(self.table.ids, ids[inside])
        return positions, is_stored

    def are_described(self, positions: Int64[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
        """Return which of the items have metadata."""
        if self.described != SOME:
            return np.full(len(positions), self.described == ALL)
        self.verify_at(positions)
        bits = self._section("described")[positions // 8] >> (7 - positions % 8).astype(np.uint8)
        return np.asarray(bits & 1, dtype=np.bool_)

    def content(self) -> memoryview:
        """Return the whole file."""
        return self._mapped.data

    def n_described(self) -> int:
        if self.described != SOME:
            return len(self) if self.described == ALL else 0
        self.verify()
        return int(np.bitwise_count(self._section("described")).sum())

    def damaged_runs(self) -> Iterator[tuple[int, int]]:
        """Yield the bounds of the positions whose codes or ids are damaged."""
        self._verify_checksums()
        for run in range(self.n_runs):
            try:
                self._verify_runs(np.array([run]))
            except DamagedIndexError:
                yield run * RUN, min((run + 1) * RUN, len(self))

    def _ids(self) -> Ids:
        if self._header["ids"] == "range":
            return IdRange(self.info.first, self.info.count)
        directory = self._section("directory").view("<i8").reshape(3, self.n_runs)
        bases, widths, starts = directory
        return PackedIds(self.info.count, bases, widths, starts, self._section("offsets"))

    def _verify_checksums(self) -> None:
        if self._has_checksums:
            return
        for name in ("checksums", "directory"):
            if crc(self._section(name)) != self._header[f"{name}_checksum"]:
                raise self._damaged(f"has {name} that are not as written")
        self._has_checksums = True

    def _verify_runs(self, runs: Int64[np.ndarray, " n"]) -> None:
        """Raise unless consecutive runs are as written."""
        words, expected = self.table.words, self._checksums[runs]
        piece = slice(int(runs[0]) * RUN, (int(runs[-1]) + 1) * RUN)
        is_right = np.ones(len(runs), dtype=np.bool_)
        for row in range(self._n_words):
            is_right &= word_checksums(words[row, piece]) == expected[:, row]
        if isinstance(self.table.ids, PackedIds) or self.described == SOME:
            others = np.array([self._other_checksums(run) for run in runs.tolist()])
            is_right &= (others == expected[:, self._n_words :]).all(axis=1)
        self._verified[runs[is_right]] = True
        if not is_right.all():
            run = int(runs[~is_right][0])
            stop = min((run + 1) * RUN, len(self))
            raise self._damaged(f"has codes {run * RUN} to {stop - 1} that are not as written")

    def _other_checksums(self, run: int) -> list[int]:
        """Compute the checksums of the ids and the bits of a run."""
        found, ids, bits = [0], self.table.ids, self._section("described")
        if isinstance(ids, PackedIds):
            width, start = int(ids.widths[run]), int(ids.starts[run])
            n_bytes = -(-width * min(RUN, len(self) - run * RUN) // 8) * 8
            found = [crc(ids.offsets[start : start + n_bytes])]
        return [*found, crc(bits[run * RUN // 8 : (run + 1) * RUN // 8])]

    def _section(self, name: str) -> np.ndarray:
        start, length = self._sections[name]
        return self._mapped[start : start + length]

    def _damaged(self, reason: str) -> DamagedIndexError:
        return DamagedIndexError(self._folder, f"{self.info.file} {reason}")


class MappedFile:
    """A mapped file, shown to numpy as writable bytes, though writing to them ends the process.

    Read-only arrays are another type to numba, which would compile every kernel again for them. A
    private mapping that may be written would count as memory of every process that opens it.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        view = np.frombuffer(self._map, dtype=np.uint8)
        self.__array_interface__ = {
            "data": (view.ctypes.data, False),
            "shape": view.shape,
            "typestr": "|u1",
            "version": 3,
        }


def word_checksums(words: UInt64[np.ndarray, " n"]) -> UInt64[np.ndarray, " runs"]:
    """Return the checksum of each run of words."""
    if len(words) < FEW_RUNS * RUN:
        return run_checksums_reference(words, RUN)
    from orbithash.kernels.checksums import run_checksums

    return run_checksums(words, RUN)


def crc(array: np.ndarray) -> int:
    return zlib.crc32(array.data)


def page_after(offset: int) -> int:
    return -(-offset // PAGE) * PAGE
