"""Metadata on disk: one row per item with a checksum, and the tables for filters."""

import hashlib
import json
import sqlite3
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from orbithash.errors import DamagedIndexError, PathInUseError
from orbithash.index.base import Metadata, Value, Where, has_fields
from orbithash.index.store.database import change_number, check_number, database_format
from orbithash.index.store.labels import MODULUS, PART, LabelTable, id_checksum

COLUMNS = "id, source, path, stamp, labels, fields, checksum"


class MetadataRows:
    """The database tables of metadata; the caller has begun a transaction."""

    def __init__(self, connection: sqlite3.Connection, folder: Path) -> None:
        self._connection, self._folder = connection, folder
        self._labels = LabelTable(connection, folder)

    def add(self, ids: Int64[np.ndarray, " n"], metadata: Sequence[Metadata]) -> None:
        """Store metadata under ids that are not in use; raise if a path of a source is in use."""
        sources = {name: self._source_number(name) for name in {each.source for each in metadata}}
        rows = []
        for identifier, each in zip(ids.tolist(), metadata, strict=True):
            texts = (
                each.path,
                each.stamp,
                labels_as_json(each.labels),
                fields_as_json(each.fields) if each.fields else "{}",
            )
            check = checksum(identifier, each.source, *texts)
            rows.append((identifier, sources[each.source], *texts, check))
        self._add_paths(rows)
        self._connection.executemany("INSERT INTO items VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        change_number(self._connection, "n_items", len(rows))
        self._labels.add(zip(ids.tolist(), (each.labels for each in metadata), strict=True))

    def remove(self, ids: Int64[np.ndarray, " n"]) -> None:
        """Remove the metadata of these ids, where they have any."""
        for start in range(0, len(ids), PART):
            found = [pair for pair in self.get(ids[start : start + PART]) if pair is not None]
            self._labels.remove((identifier, metadata.labels) for identifier, metadata in found)
            removed = [identifier for identifier, _ in found]
            rows = self._connection.execute(
                "SELECT id, source, path FROM items WHERE id IN (SELECT value FROM json_each(?))",
                (json.dumps(removed),),
            ).fetchall()
            self._connection.executemany(
                "DELETE FROM paths WHERE source = ? AND hash = ? AND id = ?",
                [(source, path_hash(path), each) for each, source, path in rows if source and path],
            )
            self._connection.executemany(
                "DELETE FROM items WHERE id = ?", [(identifier,) for identifier in removed]
            )
            change_number(self._connection, "n_items", -len(removed))
            self._change_source_sums(rows, sign=-1)

    def remove_empty(self, first: int, last: int) -> None:
        """Remove the rows between two ids that say nothing."""
        nothing = ("", "", labels_as_json(()), "{}")
        condition = (
            "id BETWEEN ? AND ? AND source = 0 AND (path, stamp, labels, fields) = (?, ?, ?, ?)"
        )
        parameters = (first, last, *nothing)
        cursor = self._connection.execute(f"DELETE FROM items WHERE {condition}", parameters)
        change_number(self._connection, "n_items", -cursor.rowcount)

    def described(self, first: int, last: int) -> Int64[np.ndarray, " n"]:
        """Return the ids from one to another that have a row, in ascending order."""
        query = "SELECT id FROM items WHERE id BETWEEN ? AND ? ORDER BY id"
        rows = self._connection.execute(query, (first, last))
        return np.fromiter((row[0] for row in rows), dtype=np.int64)

    def stored(self, ids: Int64[np.ndarray, " n"]) -> list[int]:
        """Return those of the ids that are in use, in their order."""
        query = "SELECT id FROM items WHERE id IN (SELECT value FROM json_each(?))"
        found = self._connection.execute(query, (json.dumps(ids.tolist()),))
        used = {identifier for (identifier,) in found}
        return [identifier for identifier in ids.tolist() if identifier in used]

    def get(self, ids: Int64[np.ndarray, " n"]) -> Iterator[tuple[int, Metadata] | None]:
        """Yield each id with its metadata, or None if it has none."""
        names = self._source_names()
        query = f"SELECT {COLUMNS} FROM items WHERE id IN (SELECT value FROM json_each(?))"
        found = self._connection.execute(query, (json.dumps(ids.tolist()),))
        rows = {row[0]: row for row in found}
        for identifier in ids.tolist():
            row = rows.get(identifier)
            yield None if row is None else (identifier, self._metadata(row, names))

    def admitted(self, where: Where) -> Int64[np.ndarray, " n"]:
        """Return the ids of the items that a filter admits, in ascending order."""
        if where.labels and not where.fields:
            return self._labels.items_with(where.labels)
        conditions, values = ["TRUE"], []
        for name, value in where.fields.items():
            conditions.append(
                "EXISTS (SELECT 1 FROM json_each(items.fields) AS field, json_each(?) AS wanted "
                "WHERE field.key = wanted.key AND field.value = wanted.value)"
            )
            values.append(json.dumps({name: value}))
        query = f"SELECT {COLUMNS} FROM items WHERE {' AND '.join(conditions)} ORDER BY id"
        # Rows that SQLite filters out are not verified: that would take eight times as long.
        self.check_count()
        found = self._verified(self._connection.execute(query, values))
        # SQLite finds too many: it cuts text at NUL, rounds numbers beyond int64, and true is 1.
        exact = (row[0] for row in found if has_fields(json.loads(row[5]), where.fields))
        ids = np.fromiter(exact, dtype=np.int64)
        return np.intersect1d(ids, self._labels.items_with(where.labels)) if where.labels else ids

    def count(self, where: Where) -> int:
        """Return the number of items that a filter admits."""
        if where.labels and not where.fields:
            return self._labels.count(where.labels)
        return len(self.admitted(where))

    def known(self, source: str) -> dict[str, tuple[int, str]]:
        """Return id and stamp of every item that was indexed from a source, by path."""
        query = (
            f"SELECT {COLUMNS} FROM items "
            "WHERE source = (SELECT number FROM sources WHERE name = ?)"
        )
        rows = list(self._verified(self._connection.execute(query, (source,))))
        self._check_source(source, np.array([row[0] for row in rows], dtype=np.int64))
        return {path: (identifier, stamp) for identifier, _, path, stamp, *_ in rows}

    def label_counts(self) -> dict[str, int]:
        """Return the number of items with each label."""
        return self._labels.counts()

    def labels(self) -> list[Any]:
        """Return all labels, also those that a damaged table has no items of."""
        return self._labels.labels()

    def items_with(self, label: str) -> Int64[np.ndarray, " n"]:
        """Return the ids of the items with a label, as they are on disk."""
        return self._labels.read(label)

    def sources(self) -> list[str]:
        """Return the names of all sources."""
        return [name for (name,) in self._connection.execute("SELECT name FROM sources")]

    def checked(self) -> Iterator[tuple[int, str, str]]:
        """Yield the id and the labels of each row, and what is wrong with it."""
        names = self._source_names()
        for row in self._connection.execute(f"SELECT {COLUMNS} FROM items"):
            error = ""
            try:
                self._check(row, names)
            except DamagedIndexError as damaged:
                error = damaged.reason
            yield row[0], row[4], error

    def check_count(self) -> None:
        """Raise if there are more or fewer rows than were stored."""
        (count,) = self._connection.execute("SELECT count(*) FROM items NOT INDEXED").fetchone()
        check_number(self._connection, self._folder, "n_items", count)

    def _add_paths(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Enter new rows by their paths; raise if a path of a source is stored, or given twice."""
        new: dict[tuple[int, str], int] = {}
        for identifier, source, path, *_ in rows:
            if source and path and new.setdefault((source, path), identifier) != identifier:
                raise PathInUseError(path, self._source_names()[source])
        hashes = [(source, path_hash(path), each) for (source, path), each in new.items()]
        # Those with an equal hash have an equal path, but for one pair in billions.
        query = (
            "SELECT source, path FROM items WHERE id IN ("
            "SELECT paths.id FROM json_each(?) AS new, paths "
            "WHERE source = json_extract(new.value, '$[0]') "
            "AND hash = json_extract(new.value, '$[1]'))"
        )
        for pair in self._connection.execute(query, (json.dumps(hashes),)):
            if pair in new:
                raise PathInUseError(pair[1], self._source_names()[pair[0]])
        self._connection.executemany("INSERT INTO paths VALUES (?, ?, ?)", hashes)
        self._change_source_sums(rows, sign=1)

    def _change_source_sums(self, rows: Iterable[tuple[Any, ...]], *, sign: int) -> None:
        """Add rows, which begin with id and source, to the sums of their sources, or subtract."""
        by_source: dict[int, list[int]] = defaultdict(list)
        for identifier, source, *_ in rows:
            if source:
                by_source[source].append(identifier)
        for source, ids in by_source.items():
            change = sign * id_checksum(np.array(ids, dtype=np.int64)) % MODULUS
            self._connection.execute(
                f"UPDATE sources SET count = count + ?, total = (total + ?) % {MODULUS} "
                "WHERE number = ?",
                (sign * len(ids), change, source),
            )

    def _check_source(self, source: str, ids: Int64[np.ndarray, " n"]) -> None:
        """Raise unless these are all the ids of a source."""
        if database_format(self._connection) < 3:
            return
        query = "SELECT count, total FROM sources WHERE name = ?"
        expected = self._connection.execute(query, (source,)).fetchone() or (0, 0)
        if expected != (len(ids), id_checksum(ids)):
            raise DamagedIndexError(
                self._folder,
                f"{len(ids)} of {expected[0]} items from {source} are found, or not the same ones",
            )

    def _source_number(self, name: str) -> int:
        if not name:
            return 0
        self._connection.execute("INSERT OR IGNORE INTO sources (name) VALUES (?)", (name,))
        query = "SELECT number FROM sources WHERE name = ?"
        return int(self._connection.execute(query, (name,)).fetchone()[0])

    def _source_names(self) -> dict[Any, Any]:
        return dict(self._connection.execute("SELECT number, name FROM sources")) | {0: ""}

    def _verified(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        names = self._source_names()
        for row in rows:
            self._check(row, names)
            yield row

    def _check(self, row: tuple[Any, ...], names: dict[Any, Any]) -> None:
        """Raise unless a row matches its checksum."""
        identifier, source, *texts, expected = row
        if checksum(identifier, names.get(source), *texts) != expected:
            raise DamagedIndexError(
                self._folder, f"the metadata of item {identifier} is not as written"
            )

    def _metadata(self, row: tuple[Any, ...], names: dict[Any, Any]) -> Metadata:
        self._check(row, names)
        _, source, path, stamp, labels, fields, _ = row
        return Metadata(
            path=path,
            labels=tuple(json.loads(labels)),
            source=names[source],
            stamp=stamp,
            fields=json.loads(fields),
        )


@lru_cache(maxsize=1 << 16)
def labels_as_json(labels: tuple[str, ...]) -> str:
    return json.dumps(labels, ensure_ascii=False)


def fields_as_json(fields: Mapping[str, Value]) -> str:
    return json.dumps(dict(fields), ensure_ascii=False, allow_nan=False)


def checksum(*row: object) -> int:
    return zlib.crc32("\0".join(map(str, row)).encode(errors="surrogatepass"))


def path_hash(path: str) -> int:
    digest = hashlib.blake2b(path.encode(errors="surrogatepass"), digest_size=6).digest()
    return int.from_bytes(digest)
