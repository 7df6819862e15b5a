"""Image tables: `.csv` or `.parquet` with the columns path, labels and, optionally, split."""

import csv
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64

from orbithash.data.images import ImageFiles, check_text
from orbithash.data.splits import Split, default_split, split_to_encode
from orbithash.errors import InputError, MissingExtraError
from orbithash.files import whole_file

PARTS = ("train", "query", "database")
COLUMNS = ("path", "labels", "class", "split")
NO_LABEL = ";"  # an empty cell is more likely a mistake


def image_table(
    file: Path, *, seed: int = 0, undivided: bool = False, labelled: bool = True
) -> ImageFiles:
    """Open the images of a table, in its order.

    Paths are relative to the table's folder. `;` separates several labels of an image, and a lone
    `;` stands for none. The column class, instead of labels, has exactly one label as it is, also
    with `;` or spaces around it. `+` joins several parts of the split, such as `train+database`;
    without the column split, `default_split` makes the split. Classes are the labels in
    alphabetical order.
    With `undivided`, for encoding, every image trains, and there need not be queries or a database.
    If it need not be `labelled`, the column labels may be missing, and without any label all images
    have the class "".
    """
    paths, labels, parts = [], [], []
    for position, row in read_rows(file, ("path", "labels") if labelled else ("path",)):
        paths.append(row["path"])
        is_class = "class" in row and "labels" not in row
        text = row["class"] if is_class else row.get("labels", NO_LABEL).strip()
        names = {text} if is_class else {name.strip() for name in text.split(";")} - {""}
        check_text((row["path"], text), f"{position} of {file}")
        if not row["path"] or not text:
            raise InputError(
                f"{position} of {file} lacks a path or a label; give both, or {NO_LABEL} for an "
                "image without labels"
            )
        labels.append(names)
        if "split" in row:
            parts.append({part.strip() for part in row["split"].split("+")} - {""})
            if unknown := sorted(parts[-1] - set(PARTS)):
                raise InputError(
                    f"{position} of {file} has the split {row['split']!r} with {unknown[0]!r}; "
                    "join train, query and database by +"
                )
    if not paths:
        raise InputError(f"{file} has no rows; give one per image")
    classes = tuple(sorted(set().union(*labels)))
    if not classes and labelled:
        raise InputError(
            f"no image of {file} has a label; give labels (only train --labels none needs none)"
        )
    if not classes:
        classes, labels = ("",), [{""} for _ in paths]
    numbers = numbered(labels, classes)
    if undivided and parts:
        query, database = (rows_of(part, parts) for part in ("query", "database"))
        complete = len(query) and len(database)
        split = Split(np.arange(len(paths)), *((query, database) if complete else ()))
    elif undivided:
        split = split_to_encode(numbers, paths, seed=seed)
    elif classes == ("",) and not parts:
        split = Split(np.arange(len(paths)))
    elif parts:
        split = Split(*(rows_of(part, parts) for part in PARTS))
    else:
        split = default_split(numbers, paths, seed=seed)
    return ImageFiles(
        root=file.parent, paths=tuple(paths), labels=numbers, classes=classes, split=split
    )


def is_table(file: Path) -> bool:
    """Return whether a file has the name of a table; it is not opened."""
    return file.suffix.lower() in (".csv", ".parquet")


def write_image_table(images: ImageFiles, file: Path) -> None:
    """Write the images' paths, labels and split as a `.csv` that `image_table` reads.

    Paths are relative to the table, so that images and table can move together. Use it to keep a
    random split with the run that used it.
    """
    unusual = [name for name in images.classes if ";" in name or name != name.strip()]
    if unusual and images.labels.ndim == 2:
        raise InputError(
            f"the class {unusual[0]!r} has a ; or spaces around it, which a table with several "
            "labels per image cannot hold; rename it"
        )
    column = "class" if unusual else "labels"
    root = Path(os.path.relpath(images.root, file.parent))
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("path", column, "split"))
    parts = {name: set(getattr(images.split, name).tolist()) for name in PARTS}
    for row, path in enumerate(images.paths):
        labels = images.labels[row]
        numbers = np.flatnonzero(labels) if images.labels.ndim == 2 else [int(labels)]
        names = [images.classes[number] for number in numbers]
        split = "+".join(part for part, rows in parts.items() if row in rows)
        table.writerow([(root / path).as_posix(), ";".join(names) or NO_LABEL, split])
    with whole_file(file) as opened:
        opened.write(text.getvalue().encode())


def read_rows(file: Path, needed: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield every row after its position in the file, such as "line 3", for error messages.

    Raise unless the file has the needed columns.
    """
    if not file.is_file():
        raise InputError(f"there is no table {file}; check the path")
    if file.suffix.lower() == ".parquet":
        for number, row in enumerate(read_parquet_rows(file, COLUMNS)):
            check_columns(file, list(row), needed)
            yield f"row {number}", row
        return
    try:
        # Spreadsheet programs begin a CSV file with a byte order mark.
        with file.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.DictReader(lines, restval="")
            check_columns(file, list(reader.fieldnames or []), needed)
            for row in reader:
                yield f"line {reader.line_num}", row
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {file}: {error}; save it as CSV in UTF-8") from None


def check_columns(file: Path, columns: list[str], needed: tuple[str, ...]) -> None:
    for column in needed:
        if column not in columns and not (column == "labels" and "class" in columns):
            raise InputError(
                f"{file} has no column {column!r}, only {', '.join(columns) or 'none'}; "
                "it must have the columns path, labels and, optionally, split"
            )


def numbered(
    labels: list[set[str]], classes: tuple[str, ...]
) -> Int64[np.ndarray, " n"] | Bool[np.ndarray, "n classes"]:
    """Return one number per image if every image has one label, otherwise a column per class."""
    number = {name: column for column, name in enumerate(classes)}
    if all(len(names) == 1 for names in labels):
        return np.array([number[name] for names in labels for name in names], dtype=np.int64)
    multi_hot = np.zeros((len(labels), len(classes)), dtype=bool)
    for row, names in enumerate(labels):
        multi_hot[row, [number[name] for name in names]] = True
    return multi_hot


def rows_of(part: str, parts: list[set[str]]) -> Int64[np.ndarray, " rows"]:
    return np.flatnonzero([part in names for names in parts])


def read_parquet_rows(file: Path, columns: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """Yield every row as text, with those of the columns that the file has.

    Lists are joined by `;`, and missing values are empty.
    """
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError("parquet") from None
    try:
        with parquet.ParquetFile(file) as opened:
            present = [name for name in opened.schema_arrow.names if name in columns]
            # In batches, so that a table of millions of images is not in memory twice.
            for batch in opened.iter_batches(columns=present):
                for row in batch.to_pylist():
                    yield {name: as_text(value) for name, value in row.items()}
    except Exception as error:  # pyarrow raises all kinds of errors on damaged files
        raise InputError(f"cannot read {file}: {error}; save it as Parquet again") from None


def as_text(value: Any) -> str:
    if isinstance(value, list):
        return ";".join(as_text(part) for part in value)
    return "" if value is None else str(value)
