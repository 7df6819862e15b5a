"""Files that are either whole or not there, whenever the process dies."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from orbithash.errors import InputError, StorageError

UNFINISHED = ".unfinished"
FULL_OR_FAILING = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write into that takes the name `path`, and its place, when the block ends well."""
    # In the same folder, so that the last step is a rename within one file system; with a name of
    # its own, so that two who write it do not write into each other.
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}{UNFINISHED}")
    try:
        with unfinished.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        if error.errno in FULL_OR_FAILING:
            raise StorageError(
                f"cannot write {path}: {error.strerror}; what was there before is unchanged"
            ) from error
        raise InputError(
            f"cannot write {path}: {error.strerror}; give a place that can be written"
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)


def is_unfinished_file(name: str) -> bool:
    """Whether `whole_file` began a file of this name, and its process died before it was whole."""
    return name.startswith(".") and name.endswith(UNFINISHED)
