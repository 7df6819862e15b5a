"""Codes files: codes with labels, from any program, to be scored.

An `.npz` has these arrays:

codes       uint8 (n, bytes), or 0 and 1 or ±1 of shape (n, bits)
n_bits      int
labels      int (n,), or bool or 0-1 (n, classes)
query, database    int, both or neither            row numbers in this file
ids         int (n,), optional
paths       str (n,), optional                     the images they came from
classes     str, optional                          the names of labels 0, 1, …

Or the queries and the database are one `.npy` each, and their labels an `.npy` or a text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int64, Shaped, UInt8

from orbithash.codes import check_codes, check_n_bits, code_bytes, pack, unpack
from orbithash.data.array_files import listed_names, read_arrays, read_one_array
from orbithash.data.features import checked_paths, checked_split, checked_strings
from orbithash.data.images import check_class_names
from orbithash.data.splits import Split
from orbithash.data.table import numbered
from orbithash.errors import InputError
from orbithash.relevance import check_labels, check_same_kind

NEEDED, OPTIONAL = ("codes", "n_bits", "labels"), ("query", "database", "ids", "paths", "classes")
NO_LABEL = ";"  # a line for an item without labels; an empty one is more likely a mistake


@dataclass(frozen=True, eq=False)
class LabelledCodes:
    """Codes with labels and a split, without the encoder that made them."""

    codes: UInt8[np.ndarray, "n bytes"]
    n_bits: int
    labels: Int64[np.ndarray, " n"] | Bool[np.ndarray, "n classes"]
    split: Split  # every row trains; without queries, each row is one, against all others
    paths: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    embeddings: None = None  # which encoded images have, as are features
    features: None = None

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def rows(self) -> Int64[np.ndarray, " n"]:
        return np.arange(len(self))

    def positions(self, rows: Int64[np.ndarray, " wanted"]) -> Int64[np.ndarray, " wanted"]:
        return rows

    def prefix(self, n_bits: int) -> "LabelledCodes":
        """Return the codes of the first bits alone."""
        codes = pack(unpack(self.codes, self.n_bits)[:, :n_bits])
        return replace(self, codes=codes, n_bits=n_bits)


def read_codes(file: Path) -> LabelledCodes:
    """Read and check a codes file; raise `InputError` with one line if anything is wrong."""
    arrays = read_arrays(file, (*NEEDED, *OPTIONAL), "codes")
    for name in NEEDED:
        if name not in arrays:
            raise InputError(
                f"{file} has no array {name!r}, only {listed_names(file)}; "
                "save codes, n_bits and labels, and query and database if it has a split, with "
                "numpy.savez"
            )
    try:
        n_bits = checked_n_bits(arrays["n_bits"])
        codes = packed_codes(arrays["codes"], n_bits, "the")
        labels = class_labels(arrays["labels"], len(codes), "the")
        if "ids" in arrays and arrays["ids"].shape != (len(codes),):
            raise InputError(f"got ids of shape {arrays['ids'].shape} for {len(codes)} codes")
        classes = checked_strings("classes", arrays.get("classes"))
        if classes is not None:
            check_class_names(labels, classes, n_images=len(codes))
        split = checked_split(arrays, n_rows=len(codes)) or Split(train=np.arange(len(codes)))
        paths = checked_paths(arrays.get("paths"), n_rows=len(codes))
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    return LabelledCodes(codes, n_bits, labels, split, paths, classes)


def read_query_and_database(
    query: Path, database: Path, query_labels: Path, database_labels: Path, *, n_bits: int
) -> LabelledCodes:
    """Read the codes of queries and of a database, one array each, and their labels."""
    parts = []
    for file, owner in ((query, "query"), (database, "database")):
        array = read_one_array(file, "file of codes")
        try:
            parts.append(packed_codes(array, n_bits, owner))
        except InputError as error:
            raise InputError(f"{file}: {error}") from None
    n_query, n_database = map(len, parts)
    labels, classes = read_labels((query_labels, database_labels), (n_query, n_database))
    check_same_kind(*labels)
    codes = np.concatenate(parts)
    rows = np.arange(len(codes))
    split = Split(train=rows, query=rows[:n_query], database=rows[n_query:])
    return LabelledCodes(codes, n_bits, np.concatenate(labels), split, classes=classes)


def packed_codes(
    codes: Shaped[np.ndarray, "..."], n_bits: int, owner: str
) -> UInt8[np.ndarray, "n bytes"]:
    """Return codes as packed bytes; those with one number per bit are 0 and 1, or ±1.

    >>> packed_codes(np.array([[-1.0, 1.0, 1.0, -1.0]]), 4, "query")
    array([[96]], dtype=uint8)
    """
    check_n_bits(n_bits)
    n_bytes = code_bytes(n_bits)
    is_packed = codes.dtype == np.uint8 and codes.shape[1:] == (n_bytes,)
    if not is_packed and (codes.shape[1:] != (n_bits,) or codes.dtype.kind not in "biuf"):
        raise InputError(
            f"{owner} codes are {codes.dtype} of shape {codes.shape}, which does not fit {n_bits} "
            f"bits; save packed bytes, uint8 of shape (items, {n_bytes}), or 0 and 1 or ±1 of "
            f"shape (items, {n_bits})"
        )
    if not len(codes):
        raise InputError(f"{owner} codes have no rows; scores need at least one")
    if is_packed:
        check_codes(codes, n_bits, owner)
        return codes
    low = -1 if codes.dtype.kind in "if" and np.any(codes == -1) else 0
    if not np.all((codes == low) | (codes == 1)):
        raise InputError(
            f"{owner} codes have {n_bits} numbers each that are not all 0 or 1, nor all -1 or 1; "
            "binarize them first, for example by x > 0"
        )
    return pack(codes > 0)


def checked_n_bits(n_bits: Shaped[np.ndarray, "..."]) -> int:
    if n_bits.size != 1 or n_bits.dtype.kind not in "iu":
        raise InputError(
            f"n_bits is {n_bits.dtype} of shape {n_bits.shape}; it must be one whole number"
        )
    return int(n_bits.item())


def read_labels(
    files: tuple[Path, Path], sizes: tuple[int, int]
) -> tuple[list[Shaped[np.ndarray, "n *classes"]], tuple[str, ...] | None]:
    """Read the labels of queries and database, and the names of classes if they have names."""
    are_arrays = [file.suffix.lower() == ".npy" for file in files]
    if any(are_arrays) and not all(are_arrays):
        raise InputError(f"{files[0]} and {files[1]} differ; give two .npy files or two texts")
    if all(are_arrays):
        arrays = [read_one_array(file, "file of labels") for file in files]
    else:
        lines = [read_lines(file) for file in files]
        numbers = [as_numbers(of_file) for of_file in lines]
        if any(matrix is None for matrix in numbers):
            return named_labels(files, lines, sizes)
        arrays = [matrix for matrix in numbers if matrix is not None]
    labels = []
    for file, array, n, owner in zip(files, arrays, sizes, ("query", "database"), strict=True):
        try:
            labels.append(class_labels(np.asarray(array), n, owner))
        except InputError as error:
            raise InputError(f"{file}: {error}") from None
    return labels, None


def class_labels(
    labels: Shaped[np.ndarray, "..."], n: int, owner: str
) -> Int64[np.ndarray, " n"] | Bool[np.ndarray, "n classes"]:
    """Return labels of `n` codes as programs save them: also whole floats, a column, and -1 for 0.

    >>> class_labels(np.array([[3.0], [7.0]]), 2, "query")
    array([3, 7])
    """
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InputError("labels contain NaN or infinity; number the classes of every item")
    if labels.ndim and len(labels) != n:
        raise InputError(f"got {len(labels)} labels for {n} codes; give one row per code")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim == 1 and labels.dtype.kind == "f" and np.all(labels == np.round(labels)):
        labels = labels.astype(np.int64)
    if labels.ndim == 2 and labels.dtype.kind in "if" and np.all(np.isin(labels, (-1, 0, 1))):
        labels = labels == 1
    return check_labels(labels, n, owner)


def read_lines(file: Path) -> list[str]:
    if not file.is_file():
        raise InputError(f"there is no file of labels {file}; check the path")
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {file}: {error}; save it as .npy, or as UTF-8") from None
    if empty := [number for number, line in enumerate(lines, start=1) if not line.strip()]:
        raise InputError(
            f"line {empty[0]} of {file} is empty; give the labels of one item per line, or "
            f"{NO_LABEL} for none"
        )
    return lines


def as_numbers(lines: Sequence[str]) -> Shaped[np.ndarray, "n columns"] | None:
    """Return lines of numbers as a matrix; None where any line has another text.

    >>> as_numbers(["0 1", "1, 1"])
    array([[0, 1],
           [1, 1]])
    """
    try:
        rows = [[as_number(part) for part in line.replace(",", " ").split()] for line in lines]
    except ValueError:
        return None
    if len({len(row) for row in rows}) > 1:
        raise InputError(
            "some lines of labels have more numbers than others; write several labels of one item "
            "with ; between them"
        )
    return np.array(rows)


def as_number(text: str) -> float:
    """Return a number, as an integer if it is written as one: large ones are not exact floats."""
    try:
        return int(text)
    except ValueError:
        return float(text)


def named_labels(
    files: tuple[Path, Path], lines: Sequence[Sequence[str]], sizes: tuple[int, int]
) -> tuple[list[Shaped[np.ndarray, "n *classes"]], tuple[str, ...]]:
    """Number labels that are names, `;` between several of one item."""
    for file, of_file, n in zip(files, lines, sizes, strict=True):
        if len(of_file) != n:
            raise InputError(f"{file}: got {len(of_file)} lines of labels for {n} codes")
    names = [
        {name.strip() for name in line.split(";")} - {""} for of_file in lines for line in of_file
    ]
    classes = tuple(sorted(set().union(*names)))
    labels = numbered(names, classes)
    return [labels[: sizes[0]], labels[sizes[0] :]], classes
