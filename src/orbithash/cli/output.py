"""What `--out` promises: nothing is overwritten unasked, and nothing half-written is left there."""

import shutil
import tempfile
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path

from orbithash.errors import InputError


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
    with `resume`, and started anew only with `force`.
    """
    out = out.absolute()
    check_replaceable(out, contents={*contents, checkpoint}, force=force)
    partial = unfinished(out)
    if (partial / checkpoint).exists() and not resume and not force:
        raise InputError(
            f"{partial} holds an unfinished run; add --resume to go on with it, "
            "or --force to start anew"
        )
    if partial.exists() and not ((partial / checkpoint).exists() and resume):
        shutil.rmtree(partial)
    try:
        partial.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}; give --out another name") from None
    try:
        yield partial
        for path in partial.iterdir():
            # What a process that was killed had begun to write.
            if path.name not in {*contents, checkpoint}:
                path.unlink()
        if out.exists():
            shutil.rmtree(out)
        partial.rename(out)
        # Only now: until then the run could not have been taken up without it.
        (out / checkpoint).unlink(missing_ok=True)
    finally:
        if partial.exists() and not (partial / checkpoint).exists():
            shutil.rmtree(partial, ignore_errors=True)


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
