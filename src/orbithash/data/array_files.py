"""Arrays in `.npz` and `.npy` files, which may be damaged or come from a stranger.

Only the wanted arrays are read. What a header says is compared with the bytes that are there before
any memory is used, and pickled objects, which could run any code, are never loaded.
"""

import math
import zipfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Shaped
from numpy.lib import format as npy

from orbithash.errors import InputError

NPY_START, ZIP_STARTS = b"\x93NUMPY", (b"PK\x03\x04", b"PK\x05\x06")
BEST_DEFLATION = 1040  # a little more than deflate can reach
CHUNK = 1 << 24  # bytes that are unpacked at once


class Header(NamedTuple):
    """What comes before the numbers of an array."""

    shape: tuple[int, ...]
    fortran: bool  # column by column
    dtype: np.dtype

    @property
    def n_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read_arrays(
    file: Path, names: Collection[str], contents: str = "features"
) -> dict[str, np.ndarray]:
    """Read those of the named arrays that an `.npz` has; `contents` says what it should hold."""
    check_file(file, f"{contents} file")
    if not is_archive(file):
        if is_one_array(file):
            raise InputError(
                f"{file} has one array without a name; save {contents}, labels, query and database "
                "by name with numpy.savez"
            )
        raise InputError(
            f"cannot read {file}: it is not an .npz file; save {contents} with numpy.savez"
        )
    with refusing_damaged(file), ExitStack() as stack:
        stored = set(array_names(file))
        return {
            name: read_array(*open_array(file, name, stack)) for name in names if name in stored
        }


def read_one_array(file: Path, kind: str) -> np.ndarray:
    """Read an `.npy`."""
    check_file(file, kind)
    if is_archive(file):
        raise InputError(f"{file} has several arrays; give one .npz alone, or save one .npy")
    with refusing_damaged(file), ExitStack() as stack:
        return read_array(*open_array(file, "", stack))


def array_names(file: Path) -> list[str]:
    """Return the names of the arrays in an `.npz`, in alphabetical order."""
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
    return sorted(name.removesuffix(".npy") for name in names if name.endswith(".npy"))


def listed_names(file: Path) -> str:
    """Return the names of the arrays in an `.npz`, for messages."""
    return ", ".join(array_names(file)) or "none at all"


def open_array(file: Path, name: str, stack: ExitStack) -> tuple[Any, Header]:
    """Open an array of an `.npz`, or the one of an `.npy`, after its header.

    The header is checked: the numbers that it announces are there.
    """
    if is_archive(file):
        archive = stack.enter_context(zipfile.ZipFile(file))
        member = archive.getinfo(f"{name}.npy")
        if member.flag_bits & 1:
            raise InputError(f"its array {name!r} is encrypted; save it without a password")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InputError(f"its array {name!r} is compressed in a way that numpy does not use")
        if member.file_size > BEST_DEFLATION * (member.compress_size + 1):
            raise InputError(f"its array {name!r} says it is larger than its content can be")
        opened, size = stack.enter_context(archive.open(member)), member.file_size
    else:
        opened, size = stack.enter_context(file.open("rb")), file.stat().st_size
    try:
        version = npy.read_magic(opened)
        read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        header = Header(*read_header[min(version, (2, 0))](opened))
    except (ValueError, LookupError, TypeError, RecursionError, MemoryError) as error:
        reason = str(error)[:80] or type(error).__name__  # it may repeat the whole header
        raise InputError(f"its array {name!r} has no valid header ({reason})") from None
    if header.dtype.hasobject or not header.dtype.itemsize:
        raise InputError(f"its array {name!r} has the type {header.dtype}; save numbers or strings")
    left = size - opened.tell()
    if min(header.shape, default=0) < 0 or header.n_bytes != left:
        raise InputError(
            f"its array {name!r} is {header.dtype} of shape {header.shape}, which takes "
            f"{header.n_bytes:,} bytes, but has {left:,}"
        )
    return opened, header


def read_array(opened: Any, header: Header) -> Shaped[np.ndarray, "..."]:
    """Read all numbers of an array that `open_array` opened."""
    content = np.empty(header.n_bytes, np.uint8)
    for start in range(0, len(content), CHUNK):
        part = opened.read(min(CHUNK, len(content) - start))
        content[start : start + len(part)] = np.frombuffer(part, np.uint8)
        if len(part) < min(CHUNK, len(content) - start):
            raise InputError("the file ends in the middle of an array")
    opened.read(1)  # at the end, the checksum is compared
    flat = content.view(header.dtype)
    shape = header.shape
    return flat.reshape(shape[::-1]).T if header.fortran else flat.reshape(shape)


@contextmanager
def refusing_damaged(file: Path) -> Iterator[None]:
    """Turn any error while reading arrays into one line: damaged archives raise all kinds."""
    try:
        yield
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        save = "numpy.savez" if is_archive(file) else "numpy.save"
        raise InputError(
            f"cannot read {file} as arrays of numbers and strings: {reason}; save it again with "
            f"{save}, without objects"
        ) from None


def check_file(file: Path, kind: str) -> None:
    if not file.is_file():
        raise InputError(f"there is no {kind} {file}; check the path")


def is_archive(file: Path) -> bool:
    return starts_with(file, ZIP_STARTS)


def is_one_array(file: Path) -> bool:
    return starts_with(file, (NPY_START,))


def starts_with(file: Path, starts: tuple[bytes, ...]) -> bool:
    with file.open("rb") as opened:
        return opened.read(8).startswith(starts)
