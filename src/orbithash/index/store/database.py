"""The SQLite file of an index: schema, connections, transactions and errors.

facts     properties of the whole index: n_bits, next_id, version, digest of the encoder, and the
          numbers of rows of the tables below, by which missing rows are noticed
segments  the manifest: files of codes; see manifest.py
removed   positions in segments whose items were removed since
blocks    new codes with their ids, a few thousand per row, until they are sealed into a segment
items     metadata, one row per item; none of sealed items that have no metadata
labels    pairs of label and item, for filters, and label_sums to verify them; see rows.py
sources   names of the sources that items were indexed from, with sums to verify their rows; and
          files of codes that were stored without metadata, so that none is stored twice
paths     hashes of paths by source, so that no path of a source is stored twice

One transaction covers everything: whenever the process dies, an item is stored with its code and
its metadata or not at all, and a reader sees one state of both. In write-ahead mode readers
continue while one process writes. See docs/architecture.md for segments and their crash points.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from orbithash.errors import DamagedIndexError, InputError, StorageError
from orbithash.index.store.locks import WAIT, one_writer

FILE = "index.sqlite"
APPLICATION = 0x6F726274  # "orbt", in the header of every file of ours
FORMAT = 3
READABLE = (2, FORMAT)  # 2 has no segments; the first write turns it into 3, see upgrade.py

# Tables that format 2 does not have, or has otherwise. The payload is last, so that the other
# columns are read without it.
NEW_TABLES = """
CREATE TABLE blocks (
    first INTEGER PRIMARY KEY, -- the lowest of its ids; ranges of blocks do not overlap
    version INTEGER NOT NULL,  -- changes whenever the block is written
    count INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    payload BLOB NOT NULL      -- ids, then codes
);
CREATE TABLE segments (
    number INTEGER PRIMARY KEY,
    file TEXT NOT NULL,
    count INTEGER NOT NULL,
    first INTEGER NOT NULL,     -- id
    last INTEGER NOT NULL,
    length INTEGER NOT NULL,    -- bytes of the file
    checksum INTEGER NOT NULL,  -- of the file's header
    n_described INTEGER NOT NULL, -- items with a row in `items`, the removed ones included
    n_removed INTEGER NOT NULL,
    removed_sum INTEGER NOT NULL
);
CREATE TABLE removed (
    number INTEGER PRIMARY KEY AUTOINCREMENT, -- so that readers load only the new ones
    segment INTEGER NOT NULL,
    position INTEGER NOT NULL
);
CREATE TABLE paths (
    source INTEGER,
    hash INTEGER, -- of the path
    id INTEGER,
    PRIMARY KEY (source, hash, id)
) WITHOUT ROWID;
ALTER TABLE sources ADD COLUMN count INTEGER NOT NULL DEFAULT 0; -- of its rows in `items`
ALTER TABLE sources ADD COLUMN total INTEGER NOT NULL DEFAULT 0; -- checksum of their ids
ALTER TABLE sources ADD COLUMN stamp TEXT; -- of a file of codes that have no rows
ALTER TABLE sources ADD COLUMN n_codes INTEGER NOT NULL DEFAULT 0; -- of such a file
"""
# Facts that count rows, and how messages name them.
NUMBERS = {
    "n_segments": "segments",
    "n_blocks": "blocks of codes",
    "n_codes": "codes in blocks",
    "n_items": "rows of metadata",
}
SCHEMA = f"""
PRAGMA page_size = 8192;
PRAGMA journal_mode = WAL;
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {FORMAT};
CREATE TABLE facts (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE sources (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE items (
    id INTEGER PRIMARY KEY,
    source INTEGER NOT NULL,
    path TEXT NOT NULL,
    stamp TEXT NOT NULL,
    labels TEXT NOT NULL, -- JSON
    fields TEXT NOT NULL, -- JSON
    checksum INTEGER NOT NULL
);
CREATE INDEX items_by_source ON items (source) WHERE source > 0;
CREATE TABLE labels (label TEXT, id INTEGER, PRIMARY KEY (label, id)) WITHOUT ROWID;
CREATE TABLE label_sums (label TEXT PRIMARY KEY, total INTEGER NOT NULL) WITHOUT ROWID;
{NEW_TABLES}
"""


def create_database(folder: Path) -> None:
    """Write an empty database into a folder."""
    with (
        translated_errors(folder),
        closing(sqlite3.connect(folder / FILE, isolation_level=None)) as connection,
    ):
        connection.executescript(SCHEMA)


def connect(folder: Path) -> sqlite3.Connection:
    """Connect to the database of an index; raise if it cannot be used.

    Where the folder is read-only, SQLite cannot create the files of its write-ahead mode. The
    database is then read as it is, without looking for changes by other processes.
    """
    file = folder / FILE
    if not folder.exists():
        raise InputError(f"there is no index {folder}; create one with orbithash index")
    if not file.is_file():
        raise InputError(f"{folder} is no index: it holds no {FILE}; make one with orbithash index")
    with translated_errors(folder):
        try:
            return checked_connection(folder, file.absolute().as_uri())
        except sqlite3.OperationalError as error:
            # Which of them depends on whether the file system or the user forbids to write.
            if primary_code(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                raise
        log = folder / f"{FILE}-wal"
        if log.exists() and log.stat().st_size:
            raise InputError(
                f"{folder} is read-only, and some of its items are still in {log.name}, left by a "
                "process that was stopped; open a copy of the folder that can be written"
            )
        return checked_connection(folder, file.absolute().as_uri() + "?immutable=1")


def file_identity(file: Path) -> tuple[int, int] | None:
    """Return what tells a file from one that replaces it; None if there is none."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def checked_connection(folder: Path, uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        uri, uri=True, timeout=WAIT, isolation_level=None, check_same_thread=False
    )
    try:
        application, version = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("application_id", "user_version")
        )
        if application != APPLICATION:
            raise DamagedIndexError(folder, f"{FILE} was not written by orbithash")
        if version not in READABLE:
            raise InputError(
                f"the index {folder} has format {version}, and this version of orbithash reads "
                f"formats {READABLE[0]} and {FORMAT}; use the version that wrote it, or index again"
            )
        # A committed transaction survives a power cut.
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def writing(connection: sqlite3.Connection, folder: Path) -> Iterator[None]:
    """Run the block as one transaction: all of its writes, or none."""
    with translated_errors(folder):
        if not os.access(folder / FILE, os.W_OK):
            raise read_only_error(folder)
        with one_writer(folder):
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise


def close(connection: sqlite3.Connection, folder: Path) -> None:
    """Close a connection; the last one to close moves what the log holds into the database."""
    with ExitStack() as stack:
        if os.access(folder, os.W_OK):
            with suppress(StorageError):  # closing comes first
                stack.enter_context(one_writer(folder))
        connection.close()


def database_format(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


@contextmanager
def reading(connection: sqlite3.Connection, folder: Path) -> Iterator[None]:
    """Let all reads of the block see one state, even if another process writes."""
    with translated_errors(folder):
        connection.execute("BEGIN")
        try:
            yield
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def change_number(connection: sqlite3.Connection, name: str, change: int) -> None:
    """Add to one of the facts that count the rows of a table."""
    connection.execute("UPDATE facts SET value = value + ? WHERE name = ?", (change, name))


def check_number(connection: sqlite3.Connection, folder: Path, name: str, found: int) -> None:
    """Raise if a table has another number of rows than it should have.

    A flipped bit in a page of SQLite can hide rows without any error.
    """
    row = connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    if row is None and database_format(connection) < FORMAT:
        return  # not counted yet
    if row is None or row[0] != found:
        expected = "an unknown number" if row is None else row[0]
        raise DamagedIndexError(folder, f"it has {found} of {expected} {NUMBERS[name]}")


@contextmanager
def translated_errors(folder: Path) -> Iterator[None]:
    """Translate SQLite's errors into ours, which tell the user what to do."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise DamagedIndexError(folder, str(error)) from error
    except sqlite3.OperationalError as error:
        raise operational_error(error, folder) from error
    except sqlite3.ProgrammingError as error:
        # Any other is a bug in this library, and says nothing about the file.
        if "closed" not in str(error):
            raise
        raise InputError(f"the index {folder} is closed; open it again to use it") from None
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise DamagedIndexError(folder, str(error)) from error
    except UnicodeEncodeError as error:
        raise InputError(f"{error.object!r} is not valid text; rename the file") from error


UNCHANGED = "nothing of this was stored, and all earlier items are unchanged"


def operational_error(error: sqlite3.OperationalError, folder: Path) -> Exception:
    match primary_code(error):
        case sqlite3.SQLITE_FULL:
            return StorageError(
                f"the disk of {folder} is full; {UNCHANGED}: free some space and try again"
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StorageError(
                f"another process has been writing to {folder} for {WAIT:.0f} s; {UNCHANGED}: "
                "try again"
            )
        case sqlite3.SQLITE_IOERR:
            return StorageError(
                f"cannot read or write {folder}: {error}; {UNCHANGED}: check the disk"
            )
        case sqlite3.SQLITE_READONLY:
            return read_only_error(folder)
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return StorageError(f"cannot open {folder}: {error}; check its permissions")
    return DamagedIndexError(folder, str(error))


def read_only_error(folder: Path) -> StorageError:
    return StorageError(
        f"{folder} is read-only and can only be searched; to change it, check its permissions or "
        "copy it to a place where you can write"
    )


def primary_code(error: sqlite3.OperationalError) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
