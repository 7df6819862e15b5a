"""Labels on disk: pairs of label and item, and a sum for each label by which they are verified."""

import sqlite3
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt64

from orbithash.errors import DamagedIndexError

PART = 1 << 14  # items whose rows are in memory at the same time
SPREAD = np.uint64(0x9E3779B97F4A7C15)  # odd, so that each bit of an id reaches the highest bits
MODULUS = 1 << 32
MAX_KEPT = 1 << 22  # ids of labels in memory: 32 MB


class LabelTable:
    """The database tables `labels` and `label_sums`; the caller has begun a transaction."""

    def __init__(self, connection: sqlite3.Connection, folder: Path) -> None:
        self._connection, self._folder = connection, folder
        # Of one state, the least recently used labels first: filters are often repeated.
        self._kept: OrderedDict[str, Int64[np.ndarray, " n"]] = OrderedDict()
        self._kept_version: object = None
        self._n_kept = 0

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
        self._drop_older_states()
        found = [self._ids(label) for label in dict.fromkeys(labels)]
        if len(found) == 1:
            return found[0]
        ids = np.concatenate([np.empty(0, dtype=np.int64), *found])
        ids.sort(kind="stable")  # which merges runs that are sorted already
        return np.asarray(ids[np.append(True, ids[1:] != ids[:-1])[: len(ids)]])

    def count(self, labels: tuple[str, ...]) -> int:
        """Return the number of items with any of the labels."""
        return len(self.items_with(labels))

    def counts(self) -> dict[str, int]:
        """Return the number of items with each label in use, verified, in one pass."""
        counts: Counter[str] = Counter()
        totals: Counter[str] = Counter()
        rows = self._connection.execute("SELECT label, id FROM labels ORDER BY label")
        while part := rows.fetchmany(PART):
            labels = np.array([label for label, _ in part], dtype=object)
            spread = spread_ids(np.array([identifier for _, identifier in part], dtype=np.int64))
            starts = np.flatnonzero(np.append(True, labels[1:] != labels[:-1]))
            sizes = np.diff(np.append(starts, len(labels))).tolist()
            sums = np.add.reduceat(spread, starts).tolist()
            for label, size, total in zip(labels[starts].tolist(), sizes, sums, strict=True):
                counts[label] += size
                totals[label] += total
        expected = Counter(dict(self._connection.execute("SELECT label, total FROM label_sums")))
        for label in totals.keys() | expected.keys():
            if totals[label] % MODULUS != expected[label]:
                raise self._damaged(label)
        return dict(counts)

    def labels(self) -> list[Any]:
        # If one of the tables is damaged, a label may be in the other only.
        query = "SELECT label FROM labels UNION SELECT label FROM label_sums ORDER BY label"
        return [label for (label,) in self._connection.execute(query)]

    def read(self, label: str) -> Int64[np.ndarray, " n"]:
        """Read the ids of the items with a label; raise if they are not those stored."""
        rows = self._connection.execute("SELECT id FROM labels WHERE label = ?", (label,))
        ids = np.fromiter((row[0] for row in rows), dtype=np.int64)
        query = "SELECT total FROM label_sums WHERE label = ?"
        total = self._connection.execute(query, (label,)).fetchone()
        if (0 if total is None else total[0]) != id_checksum(ids):
            raise self._damaged(label)
        return ids

    def _drop_older_states(self) -> None:
        query = "SELECT value FROM facts WHERE name = 'version'"
        version = self._connection.execute(query).fetchone()
        if version != self._kept_version:
            self._kept.clear()
            self._kept_version, self._n_kept = version, 0

    def _ids(self, label: str) -> Int64[np.ndarray, " n"]:
        if label not in self._kept:
            ids = self.read(label)
            ids.setflags(write=False)
            self._kept[label] = ids
            self._n_kept += len(ids)
            while self._n_kept > MAX_KEPT and len(self._kept) > 1:
                self._n_kept -= len(self._kept.popitem(last=False)[1])
        self._kept.move_to_end(label)
        return self._kept[label]

    def _damaged(self, label: object) -> DamagedIndexError:
        return DamagedIndexError(
            self._folder, f"the table of items with the label {label!r} is not as written"
        )

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
    return int(spread_ids(ids).sum(dtype=np.uint64)) % MODULUS


def spread_ids(ids: Int64[np.ndarray, " n"]) -> UInt64[np.ndarray, " n"]:
    return np.asarray((ids.view(np.uint64) + np.uint64(1)) * SPREAD >> np.uint64(32))
