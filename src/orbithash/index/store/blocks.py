"""New codes on disk: blocks of a few thousand, sorted by id, each verified when it is read.

Blocks hold ranges of ids that do not overlap: reading them in order gives the table for search.
Adding at the end rewrites at most one block; adding or removing elsewhere rewrites the blocks
concerned. Once there are many, they are sealed into a segment; see sealing.py.
"""

import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Int64, UInt8

from orbithash.codes import code_bytes
from orbithash.errors import DamagedIndexError
from orbithash.index.code_table import CodeTable, empty_table
from orbithash.index.store.database import check_number
from orbithash.kernels.plain_search import as_words

BLOCK = 4096  # codes at most: 64 kB of 64-bit codes, cheap enough to rewrite for one item


@dataclass(frozen=True, eq=False)
class Block:
    """Codes in the order of ids."""

    ids: Int64[np.ndarray, " n"]
    codes: UInt8[np.ndarray, "n bytes"]

    def merged(self, other: "Block") -> "Block":
        ids = np.concatenate([self.ids, other.ids])
        order = np.argsort(ids)
        return Block(ids[order], np.concatenate([self.codes, other.codes])[order])

    def without(self, ids: Int64[np.ndarray, " m"]) -> "Block":
        kept = ~np.isin(self.ids, ids)
        return Block(self.ids[kept], self.codes[kept])


class CodeBlocks:
    """The database table `blocks`; the caller has begun a transaction."""

    def __init__(self, connection: sqlite3.Connection, folder: Path, n_bits: int) -> None:
        self._connection, self._folder = connection, folder
        self.n_bits, self._n_bytes = n_bits, code_bytes(n_bits)

    def count(self) -> int:
        row = self._connection.execute("SELECT coalesce(sum(count), 0) FROM blocks").fetchone()
        return int(row[0])

    def add(self, ids: Int64[np.ndarray, " n"], codes: UInt8[np.ndarray, "n bytes"]) -> None:
        """Store codes under ids that are not in use."""
        order = np.argsort(ids)
        new = Block(ids[order], codes[order])
        for first, is_last, part in self._split_by_block(new):
            block = part if first is None else self._pop(first).merged(part)
            # The last block is filled, because new ids mostly come after it; others are split
            # evenly, so that both parts have room.
            size = BLOCK if is_last else -(-len(block.ids) // -(-len(block.ids) // BLOCK))
            for start in range(0, len(block.ids), size):
                stop = start + size
                self._write(Block(block.ids[start:stop], block.codes[start:stop]))

    def remove(self, ids: Int64[np.ndarray, " n"]) -> None:
        """Remove the codes of these ids; unknown ids are ignored."""
        no_codes = np.empty((len(ids), self._n_bytes), dtype=np.uint8)
        for first, _, part in self._split_by_block(Block(np.sort(ids), no_codes)):
            if first is not None:
                block = self.read(first)
                kept = block.without(part.ids)
                if len(kept.ids) < len(block.ids):
                    self._pop(first)
                    self._write(kept)

    def get(self, ids: Int64[np.ndarray, " n"]) -> UInt8[np.ndarray, "n bytes"]:
        """Return the codes of these ids, all of which must be stored."""
        order = np.argsort(ids)
        codes = np.empty((len(ids), self._n_bytes), dtype=np.uint8)
        start = 0
        for first, _, part in self._split_by_block(Block(ids[order], codes)):
            block = self.read(first) if first is not None else None
            positions = order[start : start + len(part.ids)]
            start += len(part.ids)
            if block is None or not np.isin(part.ids, block.ids).all():
                raise DamagedIndexError(self._folder, "some items have no codes")
            codes[positions] = block.codes[np.searchsorted(block.ids, part.ids)]
        return codes

    def check_absent(self, ids: Int64[np.ndarray, " n"]) -> None:
        """Raise if there are codes of these ids, which have no metadata."""
        no_codes = np.empty((len(ids), self._n_bytes), dtype=np.uint8)
        for first, _, part in self._split_by_block(Block(ids, no_codes)):
            if first is not None and np.isin(part.ids, self.read(first).ids).any():
                raise DamagedIndexError(self._folder, "some items have no metadata")

    def firsts(self) -> Int64[np.ndarray, " blocks"]:
        """Return the lowest id of each block, which is its key."""
        rows = self.unchecked_firsts()
        check_number(self._connection, self._folder, "n_blocks", len(rows))
        return np.array(rows, dtype=np.int64)

    def unchecked_firsts(self) -> list[int]:
        """Return the lowest ids of those blocks that are found."""
        query = "SELECT first FROM blocks ORDER BY first"
        return [first for (first,) in self._connection.execute(query)]

    def check(self) -> None:
        """Raise unless all blocks are there, in their order; their content is checked later."""
        rows = self._connection.execute(
            "SELECT first, count, typeof(checksum) FROM blocks ORDER BY first"
        ).fetchall()
        check_number(self._connection, self._folder, "n_blocks", len(rows))
        for first, count, kind in rows:
            if not isinstance(count, int) or kind != "integer":
                raise DamagedIndexError(self._folder, f"the block of id {first} is not whole")
        total = sum(count for _, count, _ in rows)
        check_number(self._connection, self._folder, "n_codes", total)

    def remove_first(self, blocks: Sequence[Block]) -> None:
        """Remove these blocks, which are the first ones."""
        last = int(blocks[-1].ids[0])
        self._connection.execute("DELETE FROM blocks WHERE first <= ?", (last,))
        self._change_numbers(-len(blocks), -sum(len(block.ids) for block in blocks))

    def read(self, first: int) -> Block:
        """Read the block with this lowest id; raise unless its checksum is correct."""
        query = "SELECT count, payload, checksum FROM blocks WHERE first = ?"
        row = self._connection.execute(query, (first,)).fetchone()
        if row is None:
            raise DamagedIndexError(self._folder, f"the block of id {first} is missing")
        count, payload, checksum = row
        # In a damaged row even the types may be wrong.
        has_types = isinstance(payload, bytes) and isinstance(count, int)
        has_length = has_types and len(payload) == count * (8 + self._n_bytes)
        if not has_length or self._checksum(payload) != checksum:
            raise DamagedIndexError(
                self._folder, f"the codes of {count} items from id {first} on are not as written"
            )
        ids = np.frombuffer(payload, dtype="<i8", count=count).astype(np.int64, copy=False)
        codes = np.frombuffer(payload, dtype=np.uint8, offset=8 * count)
        return Block(ids, codes.reshape(count, self._n_bytes))

    def table(self, loaded: "LoadedTable") -> "LoadedTable":
        """Load all codes for search; blocks that were loaded before are copied from there."""
        old, old_versions = loaded.codes, loaded.versions
        versions, counts = {}, []
        query = "SELECT first, version, count FROM blocks ORDER BY first"
        for first, version, count in self._connection.execute(query):
            if not isinstance(count, int) or not 0 < count <= 2 * BLOCK:
                raise DamagedIndexError(self._folder, f"the block of id {first} is not whole")
            versions[first] = version
            counts.append(count)
        check_number(self._connection, self._folder, "n_blocks", len(versions))
        check_number(self._connection, self._folder, "n_codes", sum(counts))
        empty = empty_table(self.n_bits)
        ids = np.empty(sum(counts), dtype=np.int64)
        words = np.empty((len(empty.words), len(ids)), dtype=np.uint64)
        stop = 0
        for (first, version), count in zip(versions.items(), counts, strict=True):
            target = slice(stop, stop + count)
            stop += count
            if old_versions.get(first) == version:
                start = int(np.searchsorted(old.ids[:], first))
                ids[target] = old.ids[start : start + count]
                words[:, target] = old.words[:, start : start + count]
            else:
                block = self.read(first)
                if len(block.ids) != count:
                    raise DamagedIndexError(self._folder, f"the block of id {first} is not whole")
                ids[target], words[:, target] = block.ids, as_words(block.codes)
        if np.any(ids[1:] <= ids[:-1]):
            raise DamagedIndexError(self._folder, "blocks of codes overlap")
        return LoadedTable(CodeTable(self.n_bits, ids, words), versions)

    def _split_by_block(self, items: Block) -> Iterator[tuple[int | None, bool, Block]]:
        """Split items by block; yield its lowest id, if any, whether it is the last, its items."""
        firsts = self.firsts()
        # Ids before all blocks belong to the first one.
        numbers = np.maximum(np.searchsorted(firsts, items.ids, side="right") - 1, 0)
        bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(items.ids)]
        for start, stop in pairwise(bounds):
            if start < stop:
                number = int(numbers[start])
                first = int(firsts[number]) if len(firsts) else None
                part = Block(items.ids[start:stop], items.codes[start:stop])
                yield first, number >= len(firsts) - 1, part

    def _pop(self, first: int) -> Block:
        block = self.read(first)
        self._connection.execute("DELETE FROM blocks WHERE first = ?", (first,))
        self._change_numbers(-1, -len(block.ids))
        return block

    def _change_numbers(self, n_blocks: int, n_codes: int) -> None:
        self._connection.execute(
            "UPDATE facts SET value = value + CASE name WHEN 'n_blocks' THEN ? ELSE ? END "
            "WHERE name IN ('n_blocks', 'n_codes')",
            (n_blocks, n_codes),
        )

    def _checksum(self, payload: bytes) -> int:
        # Seeded with the number of bits, so that a damaged one shows even if the bytes fit.
        return zlib.crc32(payload, self.n_bits)

    def _write(self, block: Block) -> None:
        if len(block.ids) == 0:
            return
        payload = block.ids.astype("<i8").tobytes() + block.codes.tobytes()
        version = "(SELECT value FROM facts WHERE name = 'version')"
        self._connection.execute(
            "INSERT INTO blocks (first, version, count, checksum, payload) "
            f"VALUES (?, {version}, ?, ?, ?)",
            (int(block.ids[0]), len(block.ids), self._checksum(payload), payload),
        )
        self._change_numbers(1, len(block.ids))


@dataclass(frozen=True, eq=False)
class LoadedTable:
    """All codes of one state, and the version of each of their blocks."""

    codes: CodeTable
    versions: dict[int, int]
