"""Codes files of any size, read in batches: an `.npz` (see codes_file.py) or a bare `.npy`."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64, UInt8

from orbithash.codes import check_n_bits, code_bytes
from orbithash.data.array_files import (
    Header,
    array_names,
    is_one_array,
    open_array,
    read_arrays,
    refusing_damaged,
)
from orbithash.data.codes_file import checked_n_bits, class_labels, packed_codes
from orbithash.data.features import checked_paths, checked_strings
from orbithash.data.images import check_class_names, check_storable
from orbithash.errors import InputError
from orbithash.files import absolute_name

BATCH = 1 << 20  # codes that are read at once
# Arrays that are read as a whole.
SMALL = ("n_bits", "ids", "labels", "paths", "classes", "source", "root", "stamps", "shard")


@dataclass(frozen=True, eq=False)
class CodesFile:
    """A file of codes and what it says about them; the codes are read by `batches`."""

    file: Path
    n_bits: int
    shape: tuple[int, ...]
    dtype: np.dtype
    ids: Int64[np.ndarray, " n"] | None = None
    labels: Int64[np.ndarray, " n"] | Bool[np.ndarray, "n classes"] | None = None
    paths: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    source: str = ""  # that the items were encoded from
    root: str = ""  # of relative paths
    stamps: tuple[str, ...] | None = None  # states of the items when they were encoded
    shard: tuple[int, int] | None = None  # number and count, if it holds a part of the source

    def __len__(self) -> int:
        return self.shape[0]

    def label_names(self, row: int) -> tuple[str, ...]:
        """Return the names of a code's labels, or their numbers where they have no names."""
        if self.labels is None:
            return ()
        of_row = self.labels[row]
        numbers = [int(of_row)] if self.labels.ndim == 1 else np.flatnonzero(of_row).tolist()
        names = (str(i) if self.classes is None else self.classes[i] for i in numbers)
        return tuple(name for name in names if name)  # "": images outside any class folder

    def batches(self, size: int = BATCH) -> Iterator[UInt8[np.ndarray, "batch bytes"]]:
        """Yield all codes in order."""
        row_bytes = self.dtype.itemsize * self.shape[1]
        with ExitStack() as stack:
            with refusing_damaged(self.file):
                opened, _ = open_array(self.file, "codes", stack)
            for start in range(0, len(self), size):
                n = min(size, len(self) - start)
                with refusing_damaged(self.file):
                    content = opened.read(n * row_bytes)
                if len(content) < n * row_bytes:
                    raise InputError(f"{self.file} ends after {start} codes; write it again")
                rows = np.frombuffer(content, self.dtype).reshape(n, self.shape[1])
                yield packed_codes(rows, self.n_bits, "the")


def open_codes(file: Path, n_bits: int | None = None) -> CodesFile:
    """Read everything but the codes; a bare `.npy` needs the number of bits."""
    if not file.is_file():
        raise InputError(f"there is no file {file}; check the path")
    check_storable(absolute_name(file))
    arrays = {} if is_one_array(file) else read_arrays(file, SMALL, "codes")
    shape, fortran, dtype = header_of_codes(file)
    try:
        if "n_bits" in arrays:
            stored = checked_n_bits(arrays["n_bits"])
            if n_bits not in (None, stored):
                raise InputError(f"it holds codes of {stored} bits, not {n_bits}; leave out --bits")
            n_bits = stored
        if n_bits is None:
            raise InputError("it does not say how many bits its codes have; add --bits")
        check_n_bits(n_bits)
        if fortran and len(shape) == 2 and shape[1] > 1:
            raise InputError("its codes are column by column; save numpy.ascontiguousarray(codes)")
        if len(shape) != 2:
            raise InputError(
                f"its codes have shape {shape}; save uint8 of shape (items, {code_bytes(n_bits)})"
            )
        codes = CodesFile(
            *(file, n_bits, shape, dtype),
            ids=stored_ids(arrays.get("ids"), shape[0]),
            **labels_and_classes(arrays, shape[0]),
            paths=checked_paths(arrays.get("paths"), n_rows=shape[0]),
        )
        return replace(codes, **origin(arrays, shape[0]))
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


def header_of_codes(file: Path) -> Header:
    if not is_one_array(file) and "codes" not in array_names(file):
        raise InputError(
            f"{file} has no array 'codes'; save codes and n_bits with numpy.savez, or codes alone "
            "as .npy"
        )
    with refusing_damaged(file), ExitStack() as stack:
        return open_array(file, "codes", stack)[1]


def stored_ids(ids: np.ndarray | None, n: int) -> Int64[np.ndarray, " n"] | None:
    if ids is None:
        return None
    if ids.shape != (n,) or ids.dtype.kind not in "iu" or not np.can_cast(ids.dtype, np.int64):
        raise InputError(f"got ids of shape {ids.shape} and type {ids.dtype} for {n} codes")
    return ids.astype(np.int64)


def origin(arrays: dict[str, np.ndarray], n: int) -> dict[str, Any]:
    """Return what `orbithash encode` says about the source, checked."""
    found: dict[str, Any] = {}
    if "shard" in arrays:
        shard = arrays["shard"]
        if shard.shape != (2,) or shard.dtype.kind not in "iu" or not 1 <= shard[0] <= shard[1]:
            raise InputError(f"got the shard {shard!r}; give its number and how many there are")
        found["shard"] = (int(shard[0]), int(shard[1]))
    if not {"source", "root", "stamps"} <= arrays.keys():
        return found
    stamps = arrays["stamps"]
    if stamps.shape != (n,) or any(arrays[name].shape for name in ("source", "root")):
        raise InputError(f"got stamps of shape {stamps.shape} for {n} codes; encode them again")
    texts = {name: str(arrays[name]) for name in ("source", "root")}
    return {**found, **texts, "stamps": tuple(stamps.astype(np.str_).tolist())}


def labels_and_classes(arrays: dict[str, np.ndarray], n: int) -> dict[str, Any]:
    if "labels" not in arrays or not n:  # of a shard in which no image could be read
        return {}
    labels = class_labels(arrays["labels"], n, "the")
    classes = checked_strings("classes", arrays.get("classes"))
    if classes is not None:
        check_class_names(labels, classes, n_images=n)
    return {"labels": labels, "classes": classes}
