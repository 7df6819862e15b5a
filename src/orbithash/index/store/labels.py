"""Pairs of label and item, for filters, verified by a checksum per label.

For every label, a second table holds a sum over the ids of its items. A pair that is lost, or whose
id or label is damaged, no longer matches the sum.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from orbithash.errors import DamagedIndexError

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
