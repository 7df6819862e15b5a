"""Upgrade of an index of an older format, in place, by the first transaction that changes it."""

import sqlite3

import numpy as np

from orbithash.index.store.database import FORMAT, NEW_TABLES, database_format
from orbithash.index.store.labels import id_checksum
from orbithash.index.store.rows import path_hash


def upgrade(connection: sqlite3.Connection) -> None:
    """Turn format 2 into 3; the caller has begun the transaction, and nothing else is done yet.

    Codes stay in their blocks. The next sealing moves them into a segment.
    """
    if database_format(connection) == FORMAT:
        return
    connection.execute("ALTER TABLE blocks RENAME TO old_blocks")
    # Not `executescript`, which would commit the transaction; comments may hold semicolons.
    statement = ""
    for line in NEW_TABLES.splitlines():
        statement += line.partition("--")[0]
        if statement.rstrip().endswith(";"):
            connection.execute(statement)
            statement = ""
    columns = "first, version, count, checksum, payload"
    connection.execute(f"INSERT INTO blocks ({columns}) SELECT {columns} FROM old_blocks")
    connection.execute("DROP TABLE old_blocks")
    numbers = {
        "n_blocks": "SELECT count(*) FROM blocks",
        "n_codes": "SELECT coalesce(sum(count), 0) FROM blocks",
        "n_items": "SELECT count(*) FROM items",
        "n_segments": "SELECT 0",
    }
    for name, query in numbers.items():
        connection.execute(f"INSERT INTO facts VALUES (?, ({query}))", (name,))
    sources = connection.execute("SELECT number FROM sources").fetchall()
    for (source,) in sources:
        query = "SELECT id, path FROM items WHERE source = ? AND source > 0"
        rows = connection.execute(query, (source,)).fetchall()
        ids = np.array([identifier for identifier, _ in rows], dtype=np.int64)
        connection.executemany(
            "INSERT INTO paths VALUES (?, ?, ?)",
            [(source, path_hash(path), identifier) for identifier, path in rows if path],
        )
        connection.execute(
            "UPDATE sources SET (count, total) = (?, ?) WHERE number = ?",
            (len(ids), id_checksum(ids), source),
        )
    connection.execute(f"PRAGMA user_version = {FORMAT}")
