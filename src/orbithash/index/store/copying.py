"""New folders of indexes: empty ones, and copies of indexes that others may be changing."""

import errno
import hashlib
import shutil
import sqlite3
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

from orbithash.codes import check_n_bits
from orbithash.errors import HashingError, InputError, StorageError
from orbithash.files import DISK_FAILURES, whole_folder
from orbithash.index.store.database import (
    FILE,
    NUMBERS,
    connect,
    create_database,
    translated_errors,
    writing,
)
from orbithash.index.store.reading import ENCODER
from orbithash.index.store.tables import Tables


def create_store(folder: Path, n_bits: int, *, encoder: bytes | None = None) -> None:
    """Create an empty index; `encoder` is the content of a run's encoder file."""
    check_n_bits(n_bits)
    folder = folder.absolute()
    try:
        if folder.exists():
            raise folder_exists(folder)
        with whole_folder(folder) as new:
            write_store(new, n_bits, encoder)
    except HashingError:
        raise
    except OSError as error:
        raise creation_error(folder, error) from None


def write_store(new: Path, n_bits: int, encoder: bytes | None) -> None:
    """Write the files of an empty index into a new folder."""
    facts: dict[str, Any] = {"n_bits": int(n_bits), "next_id": 0, "version": 0}
    facts |= dict.fromkeys(NUMBERS, 0)
    if encoder is not None:
        (new / ENCODER).write_bytes(encoder)
        facts["encoder"] = hashlib.sha256(encoder).hexdigest()
    create_database(new)
    with closing(connect(new)) as connection, writing(connection, new):
        connection.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())


def copy_index(tables: Tables, lock: AbstractContextManager[Any], folder: Path) -> None:
    """Copy the database as of one transaction, and the segments that it names.

    The files of these segments are open, so they can be read even if they are merged away.
    """
    folder = folder.absolute()
    try:
        if folder.exists():
            raise folder_exists(folder)
        with whole_folder(folder) as new:
            with (
                lock,
                tables.reading() as segments,
                translated_errors(tables.folder),
                closing(sqlite3.connect(new / FILE)) as copy,
            ):
                tables.connection.backup(copy)
            for live in segments:
                (new / live.segment.info.file).write_bytes(live.segment.content())
            if (tables.folder / ENCODER).exists():
                shutil.copy(tables.folder / ENCODER, new)
    except HashingError:
        raise
    except OSError as error:
        raise creation_error(folder, error) from None


def creation_error(folder: Path, error: OSError) -> HashingError:
    """Translate an error of the file system into ours."""
    # Another process has created it meanwhile. If its parent is a file, it does not exist.
    if error.errno in (errno.EEXIST, errno.ENOTEMPTY) and folder.exists():
        return folder_exists(folder)
    if error.errno in DISK_FAILURES:
        return StorageError(
            f"cannot write {folder}: {error.strerror}; no partial index is left: free some space, "
            "or check the disk, and try again"
        )
    return InputError(f"cannot write {folder}: {error.strerror}; choose another name")


def folder_exists(folder: Path) -> InputError:
    return InputError(f"{folder} exists; open it, or give the new index another name")
