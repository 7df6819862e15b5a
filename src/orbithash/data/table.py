"""A table of images: `.csv` or `.parquet`, with the columns path, labels and, optionally, split."""

import csv
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64

from orbithash.data.images import ImageFiles
from orbithash.data.splits import Split, default_split
from orbithash.errors import InputError, MissingExtraError
from orbithash.files import whole_file

PARTS = ("train", "query", "database")
COLUMNS = ("path", "labels", "split")
NO_LABEL = ";"  # an empty cell would rather be a mistake


def image_table(file: Path, *, seed: int = 0, undivided: bool = False) -> ImageFiles:
    """The images of a table, in its order.

    Paths are relative to the table's folder. Several labels of an image are separated by `;`, which
    alone says that it has none, and several parts of the split, as in `train+database`, by `+`.
    Without the column split, `default_split` makes one. Classes are the labels in alphabetical
    order. To be encoded alone, images may be `undivided`: all are in every part of the split.
    """
    paths, labels, parts = [], [], []
    for place, row in read_rows(file):
        paths.append(row["path"])
        names = {name.strip() for name in row["labels"].split(";")} - {""}
        if not row["path"] or not row["labels"].strip():
            raise InputError(
                f"{place} of {file} lacks a path or a label; give both, or {NO_LABEL} for an image "
                "that has none"
            )
        labels.append(names)
        if "split" in row:
            parts.append({part.strip() for part in row["split"].split("+")} - {""})
            if unknown := sorted(parts[-1] - set(PARTS)):
                raise InputError(
                    f"{place} of {file} has the split {row['split']!r} with {unknown[0]!r}; "
                    "join train, query and database by +"
                )
    if not paths:
        raise InputError(f"{file} has no rows; give one per image")
    classes = tuple(sorted(set().union(*labels)))
    if not classes:
        raise InputError(f"no image of {file} has a label; give labels")
    numbers = numbered(labels, classes)
    if undivided:
        split = Split(*[np.arange(len(paths))] * len(PARTS))
    elif parts:
        split = Split(*(rows_of(part, parts) for part in PARTS))
    else:
        split = default_split(numbers, paths, seed=seed)
    return ImageFiles(
        root=file.parent, paths=tuple(paths), labels=numbers, classes=classes, split=split
    )


def is_table(file: Path) -> bool:
    """By its name alone."""
    return file.suffix.lower() in (".csv", ".parquet")


def write_image_table(images: ImageFiles, file: Path) -> None:
    """Write which images there are, with labels and split, as a `.csv` that `image_table` reads.

    Paths are written relative to the table, so that the two may move together. A split that was
    drawn at random is thereby kept beside what was made with it.
    """
    if divided := [name for name in images.classes if ";" in name]:
        raise InputError(f"the class {divided[0]!r} has a ;, which separates labels; rename it")
    root = Path(os.path.relpath(images.root, file.parent))
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    parts = {name: set(getattr(images.split, name).tolist()) for name in PARTS}
    for row, path in enumerate(images.paths):
        labels = images.labels[row]
        numbers = np.flatnonzero(labels) if images.labels.ndim == 2 else [int(labels)]
        names = [images.classes[number] for number in numbers]
        split = "+".join(part for part, rows in parts.items() if row in rows)
        table.writerow([(root / path).as_posix(), ";".join(names) or NO_LABEL, split])
    with whole_file(file) as opened:
        opened.write(text.getvalue().encode())


def read_rows(file: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Every row with its place in the file, as an error would name it."""
    if not file.is_file():
        raise InputError(f"there is no table {file}; check the path")
    if file.suffix.lower() == ".parquet":
        for number, row in enumerate(read_parquet_rows(file, COLUMNS)):
            check_columns(file, list(row))
            yield f"row {number}", row
        return
    try:
        # Spreadsheets open their tables with a byte order mark.
        with file.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.DictReader(lines, restval="")
            check_columns(file, list(reader.fieldnames or []))
            for row in reader:
                yield f"line {reader.line_num}", row
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {file}: {error}; save it as CSV in UTF-8") from None


def check_columns(file: Path, columns: list[str]) -> None:
    for column in ("path", "labels"):
        if column not in columns:
            raise InputError(
                f"{file} has no column {column!r}, only {', '.join(columns) or 'none'}; "
                "it must have the columns path, labels and, if wanted, split"
            )


def numbered(
    labels: list[set[str]], classes: tuple[str, ...]
) -> Int64[np.ndarray, " n"] | Bool[np.ndarray, "n classes"]:
    """One number per image where every image has one label, or else a column per class."""
    number = {name: column for column, name in enumerate(classes)}
    if all(len(names) == 1 for names in labels):
        return np.array([number[name] for names in labels for name in names], dtype=np.int64)
    several = np.zeros((len(labels), len(classes)), dtype=bool)
    for row, names in enumerate(labels):
        several[row, [number[name] for name in names]] = True
    return several


def rows_of(part: str, parts: list[set[str]]) -> Int64[np.ndarray, " rows"]:
    return np.flatnonzero([part in names for names in parts])


def read_parquet_rows(file: Path, columns: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """Every row with those of the columns that the file has, as text.

    Numbers become their digits, lists are joined by `;`, and what is missing is empty.
    """
    try:
        from pyarrow import ArrowException, ArrowInvalid, parquet
    except ImportError:
        raise MissingExtraError("parquet") from None
    try:
        with parquet.ParquetFile(file) as opened:
            present = [name for name in opened.schema_arrow.names if name in columns]
            # A part at a time: a table of millions of images need not be in memory twice.
            for batch in opened.iter_batches(columns=present):
                for row in batch.to_pylist():
                    yield {name: as_text(value) for name, value in row.items()}
    except (ArrowException, ArrowInvalid, OSError) as error:
        raise InputError(f"cannot read {file}: {error}; save it as Parquet again") from None


def as_text(value: Any) -> str:
    if isinstance(value, list):
        return ";".join(as_text(part) for part in value)
    return "" if value is None else str(value)
