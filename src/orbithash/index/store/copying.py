"""A copy of an index that others may be changing, and errors of creating one."""

import errno
import shutil
import sqlite3
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

from orbithash.errors import HashingError, InputError, StorageError
from orbithash.files import DISK_FAILURES, whole_folder
from orbithash.index.store.database import FILE, translated_errors
from orbithash.index.store.encoder_file import ENCODER
from orbithash.index.store.tables import Tables


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
