"""Creation of an index on disk: the whole folder or nothing."""

import errno
import hashlib
import os
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from orbithash.codes import check_n_bits
from orbithash.errors import HashingError, InputError, StorageError
from orbithash.index.store.database import connect, create_database, writing

ENCODER = "model.safetensors"  # the name it has in a run, so that orbithash.load takes either


def create_store(folder: Path, n_bits: int, *, encoder: bytes | None = None) -> None:
    """Create an empty index; `encoder` is the content of a run's encoder file."""
    check_n_bits(n_bits)
    folder = folder.absolute()
    try:
        if folder.exists():
            raise folder_exists(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f".{folder.name}-", dir=folder.parent, ignore_cleanup_errors=True
        ) as temporary:
            new = Path(temporary) / "new"
            write_store(new, n_bits, encoder)
            new.rename(folder)
        sync_to_disk(folder.parent)
    except HashingError:
        raise
    except OSError as error:
        raise creation_error(folder, error) from None


def write_store(new: Path, n_bits: int, encoder: bytes | None) -> None:
    """Write the files of an empty index into a new folder, and sync them to disk."""
    new.mkdir()
    facts: dict[str, Any] = {"n_bits": int(n_bits), "next_id": 0, "version": 0}
    if encoder is not None:
        (new / ENCODER).write_bytes(encoder)
        facts["encoder"] = hashlib.sha256(encoder).hexdigest()
    create_database(new)
    with closing(connect(new)) as connection, writing(connection, new):
        connection.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
    for path in (*new.iterdir(), new):
        sync_to_disk(path)


def creation_error(folder: Path, error: OSError) -> HashingError:
    """Translate an error of the file system into ours."""
    # Another process has created it meanwhile. If its parent is a file, it does not exist.
    if error.errno in (errno.EEXIST, errno.ENOTEMPTY) and folder.exists():
        return folder_exists(folder)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
        return StorageError(
            f"cannot write {folder}: {error.strerror}; no partial index is left: free some space, "
            "or check the disk, and try again"
        )
    return InputError(f"cannot write {folder}: {error.strerror}; choose another name")


def folder_exists(folder: Path) -> InputError:
    return InputError(f"{folder} exists; open it, or give the new index another name")


def sync_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
