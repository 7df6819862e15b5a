"""Rows of a `.parquet` file, as those of a `.csv` are."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orbithash.errors import InputError, MissingExtraError


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
