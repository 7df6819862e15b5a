"""A table of images: a `.csv` with the columns path, labels and, if wanted, split."""

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int64

from orbithash.data.base import Split
from orbithash.data.default_split import default_split
from orbithash.data.image_files import ImageFiles
from orbithash.errors import InputError

PARTS = ("train", "query", "database")


def image_table(file: Path, *, seed: int = 0) -> ImageFiles:
    """The images of a table, in its order.

    Paths are relative to the table's folder. Several labels of an image are separated by `;`, and
    several parts of the split, as in `train+database`, by `+`. Without the column split,
    `default_split` makes one. Classes are the labels in alphabetical order.
    """
    paths, labels, parts = [], [], []
    for number, row in read_rows(file):
        paths.append(row["path"])
        names = {name.strip() for name in row["labels"].split(";")} - {""}
        if not row["path"] or not names:
            raise InputError(f"line {number} of {file} lacks a path or a label; give both")
        labels.append(names)
        if "split" in row:
            parts.append({part.strip() for part in row["split"].split("+")} - {""})
            if unknown := sorted(parts[-1] - set(PARTS)):
                raise InputError(
                    f"line {number} of {file} has the split {row['split']!r} with {unknown[0]!r}; "
                    "join train, query and database by +"
                )
    if not paths:
        raise InputError(f"{file} has no rows; give one per image")
    classes = tuple(sorted(set().union(*labels)))
    numbers = numbered(labels, classes)
    return ImageFiles(
        root=file.parent,
        paths=tuple(paths),
        labels=numbers,
        classes=classes,
        split=Split(*(rows_of(part, parts) for part in PARTS))
        if parts
        else default_split(numbers, seed=seed),
    )


def read_rows(file: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Every row with the number of its line."""
    if not file.is_file():
        raise InputError(f"there is no table {file}; check the path")
    try:
        # Spreadsheets open their tables with a byte order mark.
        with file.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.DictReader(lines, restval="")
            columns = reader.fieldnames or []
            for column in ("path", "labels"):
                if column not in columns:
                    raise InputError(
                        f"{file} has no column {column!r}, only {', '.join(columns) or 'none'}; "
                        "its first line must name the columns path, labels and, if wanted, split"
                    )
            for row in reader:
                yield reader.line_num, row
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {file}: {error}; save it as CSV in UTF-8") from None


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
