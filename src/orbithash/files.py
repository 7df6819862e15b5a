"""Atomic writes of files and folders, and locks: the only place that renames into place.

Files are forced to disk before they are renamed, and folders after it: what a function has written
when it returns survives a power cut, and a power cut before leaves what was there.
"""

import errno
import fcntl
import glob
import os
import secrets
import shutil
import threading
from collections.abc import Iterator, Set
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from orbithash.errors import InputError, StorageError

UNFINISHED = ".unfinished"
PREVIOUS = ".previous"  # a folder that is being replaced, between two renames
LOCK = ".lock"  # may be left behind by a process that was killed
HELD: dict[str, threading.Lock] = {}  # by folder, of this process
DISK_FAILURES = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a file to write; it replaces `path` when the block ends without an error."""
    temporary = temporary_sibling(path)
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        flush(path.parent, files=False)
    except OSError as error:
        if error.errno in DISK_FAILURES:
            raise StorageError(
                f"cannot write {path}: {error.strerror}; the previous content is unchanged"
            ) from error
        raise InputError(
            f"cannot write {path}: {error.strerror}; choose a writable location"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a file as `whole_file` does."""
    with whole_file(path) as file:
        file.write(text.encode())


@contextmanager
def whole_folder(folder: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a folder to write into; it is renamed to `folder` when the block ends without an error.

    Its files are on disk before the rename, so that a power cut cannot leave an empty folder under
    the final name. Folders that killed processes left unfinished are removed. An existing folder
    is replaced with `replace`, and otherwise raises `FileExistsError`.
    """
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(folder)
    temporary = temporary_sibling(folder)
    temporary.mkdir()
    try:
        yield temporary
        flush(temporary)
        replaced = temporary.with_suffix(PREVIOUS)
        if replace and folder.exists():
            folder.rename(replaced)
        try:
            temporary.rename(folder)  # fails if a folder with content has that name
        except OSError as error:
            if replaced.exists():
                replaced.rename(folder)
            elif error.errno == errno.ENOTEMPTY:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
            raise
        shutil.rmtree(replaced, ignore_errors=True)
        flush(folder.parent, files=False)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def output_folder(out: Path, *, contents: Set[str], force: bool) -> Iterator[Path]:
    """Yield a folder as `whole_folder` does, for the option `--out` of a command.

    An existing folder is replaced only with `force`, and only if all its files are in `contents`,
    the names that the command writes: a mistyped `--out` must not delete other files.
    """
    remove_abandoned(out.absolute())
    check_replaceable(out, contents=contents, force=force)
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(whole_folder(out, replace=True))
        except OSError as error:
            raise InputError(
                f"cannot write {out}: {error.strerror}; give --out another name"
            ) from None
        yield folder


@contextmanager
def resumable_folder(
    out: Path, *, contents: Set[str], state: Set[str], resume: bool, force: bool
) -> Iterator[Path]:
    """Yield the folder `out` + ".partial", renamed to `out` when the block ends without an error.

    After an error it is kept if it holds anything of `state`, files and folders from which the work
    is continued with `resume`, and restarted with `force`; they are removed in the end, when all
    other files are on disk under the final name. A folder that another process writes to, or that
    holds other files than `contents`, is never touched.
    """
    out = out.absolute()
    known = {*contents, *state, LOCK}
    check_replaceable(out, contents=known, force=force)
    partial = partial_folder(out)
    check_own(partial, contents=known)
    make_folder(partial)
    with locked_folder(partial):
        begun = holds_any(partial, state)
        if begun and not resume and not force:
            raise InputError(
                f"{partial} holds an unfinished run; add --resume to continue it, "
                "or --force to start again"
            )
        if not (begun and resume):
            remove_files(partial, except_for={LOCK})
        try:
            yield partial
            flush(partial)
        except BaseException as error:
            kept = holds_any(partial, state)
            if not kept:
                shutil.rmtree(partial, ignore_errors=True)
            if is_disk_failure(error):
                then = f"continue with --resume: {partial} is kept" if kept else "start again"
                raise StorageError(
                    f"{error}; free some space, or check the disk, and {then}"
                ) from None
            raise
        remove_files(partial, except_for=known)
        try:
            # Training takes long: `out` may have been created meanwhile.
            check_replaceable(out, contents=known, force=force)
        except InputError as error:
            raise InputError(f"{error}; the finished run is in {partial}") from None
        if out.exists():
            shutil.rmtree(out)
        partial.rename(out)
        flush(out.parent, files=False)
        # Last: a crash before the rename is on disk must still find the checkpoint.
        remove_files(out, except_for=contents)


def is_disk_failure(error: BaseException) -> bool:
    """Return whether a write failed for the disk, and not for the user's choice of a place."""
    return isinstance(error, StorageError) or (
        isinstance(error, OSError) and error.errno in DISK_FAILURES
    )


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Lock the folder for this process; raise if another process holds the lock.

    The lock ends with the process. Forked workers, which may live a moment longer, do not hold it.
    """
    file = folder / LOCK
    with ExitStack() as stack, file.open("a") as opened:
        try:
            # The lock belongs to the process: threads need one of their own.
            if not HELD.setdefault(str(folder), threading.Lock()).acquire(blocking=False):
                raise OSError
            stack.callback(HELD[str(folder)].release)
            fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The previous owner may have renamed or removed the folder before we got the lock.
            ours = os.path.samestat(os.fstat(opened.fileno()), file.stat())
        except OSError:
            ours = False
        if not ours:
            raise InputError(
                f"another process is writing to {folder}; wait for it, or give --out another name"
            )
        yield


def check_regular(folder: Path) -> None:
    """Raise if a folder holds a pipe, a socket or a device: reading it could wait forever."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.exists() and not path.is_file() and not path.is_dir():
            raise InputError(f"{path} is a pipe, socket or device; remove it")


def make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}; give --out another name") from None


def partial_folder(out: Path) -> Path:
    """Return the name of an unfinished run's folder."""
    return out.with_name(out.name + ".partial")


def check_replaceable(out: Path, *, contents: Set[str], force: bool) -> None:
    """Raise unless `out` is free, or `force` allows replacing it and it holds only `contents`."""
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise InputError(f"{out} is not a folder; give --out another name")
    if not out.exists():
        return
    present = {path.name for path in out.iterdir()}
    if present and not force:
        raise InputError(f"{out} exists; add --force to replace it, or give --out another name")
    if foreign := sorted(present - contents):
        raise InputError(
            f"{out} holds {foreign[0]!r}, which this command did not write; "
            "give --out another name, even with --force"
        )


def check_own(folder: Path, *, contents: Set[str]) -> None:
    """Raise if the folder exists and holds anything that these commands did not write."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise InputError(f"{folder} is in the way; rename it, or give --out another name")
    present = {path.name for path in folder.iterdir()} if folder.exists() else set()
    foreign = sorted(name for name in present - contents if not is_temporary(name))
    if foreign:
        raise InputError(
            f"{folder} holds {foreign[0]!r}, which this command did not write; "
            "rename the folder, or give --out another name"
        )


def check_new_file(out: Path, *, suffix: str, force: bool, option: str = "--out") -> None:
    """Raise unless `out` is a free name for a file of this kind, or `force` allows replacing it.

    `option` is the option of the command that named it.
    """
    check_file_name(out, suffix=suffix, option=option)
    if out.exists() and not force:
        raise InputError(f"{out} exists; add --force to replace it, or give {option} another name")
    try:
        out.absolute().parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot write {out}: {error.strerror}; give {option} another name"
        ) from None


def check_file_name(out: Path, *, suffix: str, option: str = "--out") -> None:
    """Raise unless `out` can be the name of a file of this kind."""
    if out.is_dir():
        raise InputError(f"{option} is the folder {out}; give a file whose name ends in {suffix}")
    if out.suffix.lower() != suffix:
        raise InputError(f"{option} is {out}; give a file whose name ends in {suffix}")


def absolute_name(path: str | Path) -> str:
    """Return an absolute path without `..`, the same from any working directory.

    Symbolic links are kept: files behind a link may move, and an index must still recognise them;
    and the target of a link may have a name that says nothing.

    >>> absolute_name("/data/birds/../cats")
    '/data/cats'
    """
    return os.path.abspath(path)  # noqa: PTH100 — Path.resolve follows links


def temporary_sibling(path: Path) -> Path:
    # A sibling, so that the final rename stays within one file system; with the process's number,
    # so that leftovers of dead processes can be told from work in progress.
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.{os.getpid()}{UNFINISHED}")


def is_temporary(name: str) -> bool:
    """Whether `whole_file` or `whole_folder` created this name."""
    return name.startswith(".") and name.endswith(UNFINISHED)


def remove_abandoned(folder: Path) -> None:
    """Remove unfinished copies of this folder whose processes have ended.

    One that was killed between the two renames of a replacement has left the previous folder under
    another name: it is renamed back.
    """
    for abandoned in folder.parent.glob(f".{glob.escape(folder.name)}.{'[0-9a-f]' * 16}.*"):
        process = abandoned.stem.rpartition(".")[2]
        if not abandoned.is_dir() or not process.isdecimal() or is_alive(int(process)):
            continue
        if abandoned.suffix == PREVIOUS and not folder.exists():
            abandoned.rename(folder)
        elif abandoned.suffix in (PREVIOUS, UNFINISHED):
            shutil.rmtree(abandoned, ignore_errors=True)


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it belongs to another user
        pass
    return True


def remove_files(folder: Path, *, except_for: Set[str]) -> None:
    for path in folder.iterdir():
        if path.name in except_for:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def holds_any(folder: Path, names: Set[str]) -> bool:
    return any((folder / name).exists() for name in names)


def flush(folder: Path, *, files: bool = True) -> None:
    """Force a folder, and the files in it, to disk."""
    for path in (*(folder.iterdir() if files else ()), folder):
        if path.is_dir() and path != folder:
            flush(path)
            continue
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
