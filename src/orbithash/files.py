"""Whole files and folders or none, and locks: the only place that renames into place."""

import errno
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Set
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


@contextmanager
def whole_folder(out: Path, *, contents: Set[str], force: bool) -> Iterator[Path]:
    """A folder to write into that takes the name `out` only when the block ends well.

    An existing folder is replaced only with `force`, and only if it holds nothing but `contents`,
    the names that the command itself writes: a mistyped `--out` must not cost anybody their files.
    """
    out = out.absolute()
    check_replaceable(out, contents=contents, force=force)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        # A sibling, so that the last step is a rename within one file system.
        workplace = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}; give --out another name") from None
    try:
        new, old = workplace / "new", workplace / "old"
        new.mkdir()
        yield new
        if out.exists():
            out.rename(old)
        try:
            new.rename(out)
        except OSError:
            if old.exists():
                old.rename(out)
            raise
    finally:
        shutil.rmtree(workplace, ignore_errors=True)


@contextmanager
def resumable_folder(
    out: Path, *, contents: Set[str], checkpoint: str, resume: bool, force: bool
) -> Iterator[Path]:
    """A folder as of `whole_folder` that outlives its process while it holds a checkpoint.

    Until the block ends well it is called `out` + ".partial". One with a checkpoint is taken up
    with `resume`, and started anew only with `force`; one that another process is writing to, or
    that holds anything but `contents`, is left alone.
    """
    out = out.absolute()
    known = {*contents, checkpoint, LOCK}
    check_replaceable(out, contents=known, force=force)
    partial = unfinished(out)
    check_own(partial, contents=known)
    make_folder(partial)
    with only_process_in(partial):
        begun = (partial / checkpoint).exists()
        if begun and not resume and not force:
            raise InputError(
                f"{partial} holds an unfinished run; add --resume to go on with it, "
                "or --force to start anew"
            )
        if not (begun and resume):
            remove_from(partial, kept={LOCK})
        try:
            yield partial
        except BaseException:
            if not (partial / checkpoint).exists():
                shutil.rmtree(partial, ignore_errors=True)
            raise
        remove_from(partial, kept=known)
        try:
            # Much may have come there while the block went on.
            check_replaceable(out, contents=known, force=force)
        except InputError as error:
            raise InputError(f"{error}; what was made is whole in {partial}") from None
        if out.exists():
            shutil.rmtree(out)
        partial.rename(out)
        # Only now: until then the run could not have been taken up without it.
        for name in (checkpoint, LOCK):
            (out / name).unlink(missing_ok=True)


def make_folder(out: Path) -> None:
    """A folder that a command goes on with each time it is given."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}; give --out another name") from None


def check_own(folder: Path, *, contents: Set[str]) -> None:
    """Raise unless the folder, if there is one, holds nothing but what these commands write."""

    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise InputError(f"{folder} is in the way; rename it, or give --out another name")
    present = {path.name for path in folder.iterdir()} if folder.exists() else set()
    foreign = sorted(name for name in present - contents if not is_unfinished_file(name))
    if foreign:
        raise InputError(
            f"{folder} holds {foreign[0]!r}, which this command did not write; "
            "rename the folder, or give --out another name"
        )


def remove_from(folder: Path, *, kept: Set[str]) -> None:
    """Remove what earlier processes left, such as files that they had begun to write."""
    for path in folder.iterdir():
        if path.name not in kept:
            path.unlink()


def unfinished(out: Path) -> Path:
    return out.with_name(out.name + ".partial")


def check_replaceable(out: Path, *, contents: Set[str], force: bool) -> None:
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


def check_new_file(out: Path, *, suffix: str, force: bool) -> None:
    """Raise unless `out` is a name for a new file, or may replace one."""
    check_file_name(out, suffix=suffix)
    if out.exists() and not force:
        raise InputError(f"{out} exists; add --force to replace it, or give --out another name")
    try:
        out.absolute().parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}; give --out another name") from None


def check_file_name(out: Path, *, suffix: str) -> None:
    """Raise unless `out` can be the name of a file of this kind."""
    if out.is_dir():
        raise InputError(f"--out is the folder {out}; give a file whose name ends in {suffix}")
    if out.suffix.lower() != suffix:
        raise InputError(f"--out is {out}; give a file whose name ends in {suffix}")


LOCK = ".lock"  # the file's name; it may be left by a process that was killed


@contextmanager
def only_process_in(folder: Path) -> Iterator[None]:
    """Hold the folder, or raise if another process does.

    The lock goes with the process, however it ends. Workers that it has forked do not hold it:
    they may live a moment longer.
    """
    file = folder / LOCK
    with file.open("a") as opened:
        try:
            fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had the folder may have renamed or removed it between the two lines.
            ours = os.path.samestat(os.fstat(opened.fileno()), file.stat())
        except OSError:
            ours = False
        if not ours:
            raise InputError(
                f"another process is writing to {folder}; wait for it, or give --out another name"
            )
        yield


def absolute_name(path: str | Path) -> str:
    """The one name of what may be named from several places: absolute, and without `..`.

    Links are kept. Whoever names a folder by a link may move the files behind it, and an index
    must know them still; and what a link to a file points to may have a name that says nothing.

    >>> absolute_name("/data/birds/../cats")
    '/data/cats'
    """
    return os.path.abspath(path)  # noqa: PTH100 — Path.resolve follows links
