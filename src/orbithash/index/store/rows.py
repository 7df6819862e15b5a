"""Metadata on disk: one row per item with a checksum, and the tables for filters."""

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

from orbithash.errors import DamagedIndexError
from orbithash.index.base import Metadata, Value, Where

COLUMNS = "id, source, path, stamp, labels, fields, checksum"


class MetadataRows:
    """The database tables of metadata; the caller has begun a transaction."""

    def __init__(self, connection: sqlite3.Connection, folder: Path) -> None:
        self._connection, self._folder = connection, folder
        self._labels = LabelTable(connection, folder)

    def add(self, ids: Int64[np.ndarray, " n"], metadata: Sequence[Metadata]) -> None:
        """Store metadata under ids that are not in use."""
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
        self._connection.executemany("INSERT INTO items VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        self._labels.add(zip(ids.tolist(), (each.labels for each in metadata), strict=True))

    def remove(self, ids: Int64[np.ndarray, " n"]) -> None:
        found = [pair for pair in self.get(ids) if pair is not None]
        self._labels.remove((identifier, metadata.labels) for identifier, metadata in found)
        self._connection.executemany(
            "DELETE FROM items WHERE id = ?", [(identifier,) for identifier in ids.tolist()]
        )

    def stored(self, ids: Int64[np.ndarray, " n"]) -> list[int]:
        """Return those of the ids that are in use, in their order."""
        query = "SELECT id FROM items WHERE id IN (SELECT value FROM json_each(?))"
        found = self._connection.execute(query, (json.dumps(ids.tolist()),))
        used = {identifier for (identifier,) in found}
        return [identifier for identifier in ids.tolist() if identifier in used]

    def get(self, ids: Int64[np.ndarray, " n"]) -> Iterator[tuple[int, Metadata] | None]:
        """Yield each id with its metadata, or None if there is no such item."""
        names = self._source_names()
        for identifier in ids.tolist():
            row = self._connection.execute(
                f"SELECT {COLUMNS} FROM items WHERE id = ?", (identifier,)
            ).fetchone()
            yield None if row is None else (identifier, self._metadata(row, names))

    def admitted(self, where: Where) -> Int64[np.ndarray, " n"]:
        """Return the ids of the items that a filter admits, in ascending order."""
        if where.labels and not where.fields:
            return self._labels.items_with(where.labels)
        conditions, values = ["TRUE"], []
        for name, value in where.fields.items():
            conditions.append(
                "EXISTS (SELECT 1 FROM json_each(items.fields) AS field, json_each(?) AS wanted "
                "WHERE field.key = ? AND field.value = wanted.value AND "
                "(field.type IN ('true', 'false')) = (wanted.type IN ('true', 'false')))"
            )
            values += [json.dumps([value]), name]
        query = f"SELECT {COLUMNS} FROM items WHERE {' AND '.join(conditions)} ORDER BY id"
        # Rows that SQLite filters out are not verified: that would take eight times as long.
        found = self._verified(self._connection.execute(query, values))
        ids = np.fromiter((row[0] for row in found), dtype=np.int64)
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
        rows = self._verified(self._connection.execute(query, (source,)))
        return {path: (identifier, stamp) for identifier, _, path, stamp, *_ in rows}

    def label_counts(self) -> dict[str, int]:
        """Return the number of items with each label."""
        return self._labels.counts()

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


SPREAD = np.uint64(0x9E3779B97F4A7C15)  # odd, so that each bit of an id reaches the highest bits
MODULUS = 1 << 32


class LabelTable:
    """The database tables `labels` and `label_sums`; the caller has begun a transaction."""

    def __init__(self, connection: sqlite3.Connection, folder: Path) -> None:
        self._connection, self._folder = connection, folder

    def add(self, items: Iterable[tuple[int, tuple[str, ...]]]) -> None:
        """Store the labels of items that have none yet."""
        for label, ids in by_label(items).items():
            self._connection.executemany(
                "INSERT INTO labels VALUES (?, ?)", [(label, identifier) for identifier in ids]
            )
            self._change_sum(label, ids, sign=1)

    def remove(self, items: Iterable[tuple[int, tuple[str, ...]]]) -> None:
        """Remove these labels of these items."""
        for label, ids in by_label(items).items():
            self._connection.executemany(
                "DELETE FROM labels WHERE label = ? AND id = ?",
                [(label, identifier) for identifier in ids],
            )
            self._change_sum(label, ids, sign=-1)

    def items_with(self, labels: Iterable[str]) -> Int64[np.ndarray, " n"]:
        """Return the ids of the items with any of the labels, in ascending order."""
        found = [self._ids(label) for label in set(labels)]
        return np.unique(np.concatenate([np.empty(0, dtype=np.int64), *found]))

    def count(self, labels: tuple[str, ...]) -> int:
        """Return the number of items with any of the labels, without verifying the table."""
        places = ", ".join("?" * len(labels))
        query = f"SELECT count(DISTINCT id) FROM labels WHERE label IN ({places})"
        return int(self._connection.execute(query, labels).fetchone()[0])

    def counts(self) -> dict[str, int]:
        """Return the number of items with each label in use."""
        # If one of the tables is damaged, a label may be in the other only.
        query = "SELECT label FROM labels UNION SELECT label FROM label_sums ORDER BY label"
        labels = [label for (label,) in self._connection.execute(query)]
        counts = {label: len(self._ids(label)) for label in labels}
        return {label: count for label, count in counts.items() if count}

    def _ids(self, label: str) -> Int64[np.ndarray, " n"]:
        rows = self._connection.execute("SELECT id FROM labels WHERE label = ?", (label,))
        ids = np.fromiter((row[0] for row in rows), dtype=np.int64)
        query = "SELECT total FROM label_sums WHERE label = ?"
        total = self._connection.execute(query, (label,)).fetchone()
        if (0 if total is None else total[0]) != id_checksum(ids):
            raise DamagedIndexError(
                self._folder, f"the table of items with the label {label!r} is not as written"
            )
        return ids

    def _change_sum(self, label: str, ids: list[int], *, sign: int) -> None:
        change = sign * id_checksum(np.array(ids, dtype=np.int64)) % MODULUS
        self._connection.execute(
            "INSERT INTO label_sums VALUES (?, ?) ON CONFLICT (label) "
            f"DO UPDATE SET total = (total + excluded.total) % {MODULUS}",
            (label, change),
        )


def by_label(items: Iterable[tuple[int, tuple[str, ...]]]) -> dict[str, list[int]]:
    ids = defaultdict(list)
    for identifier, labels in items:
        for label in dict.fromkeys(labels):
            ids[label].append(identifier)
    return ids


def id_checksum(ids: Int64[np.ndarray, " n"]) -> int:
    """Return a checksum of ids that does not depend on their order."""
    spread = (ids.view(np.uint64) + np.uint64(1)) * SPREAD >> np.uint64(32)
    return int(spread.sum(dtype=np.uint64)) % MODULUS
