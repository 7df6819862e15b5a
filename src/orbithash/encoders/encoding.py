"""Codes of all items of a source: the file of codes, and the list of unreadable images.

ids        int64 (n,)             row numbers in the source
codes      uint8 (n, bytes)
n_bits     int
labels     as in the source, where known
paths      str (n,), where known
source, root, stamps   str, where items have paths or labels: what an index knows them by
shard      int (2,)               number and count, if it holds a part of the source
classes    str, where known       the names of labels 0, 1, …
query, database    int64, where the source has a split: row numbers in this file

`orbithash.data.codes_file` reads it.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from orbithash.encoders.encoder import Data, Encoded, Encoder, Progress, no_progress
from orbithash.encoders.items import Origin
from orbithash.files import whole_file


def encode_source(
    encoder: Encoder,
    data: Data,
    *,
    rows: Int64[np.ndarray, " wanted"] | None = None,
    progress: Progress = no_progress,
    keep_features: bool = False,
) -> Encoded:
    """Encode these rows of a source, or all; unreadable images are left out and listed."""
    if rows is None:
        rows = np.arange(len(data))
    (encoded,) = encoder.embed_batches(data, [rows], progress, keep_features=keep_features)
    return encoded


def write_codes(
    file: Path,
    encoded: Encoded,
    data: Data,
    origin: Origin | None = None,
    shard: tuple[int, int] | None = None,
) -> None:
    """Write codes to an `.npz`, with labels, paths and split where the source has them."""
    arrays: dict[str, np.ndarray] = {
        "ids": encoded.rows,
        "codes": encoded.codes,
        "n_bits": np.array(encoded.n_bits),
    }
    # The class "" alone stands for images outside of any class folder.
    if data.labels is not None and data.classes != ("",):
        arrays["labels"] = data.labels[encoded.rows]
        if data.classes:
            arrays["classes"] = np.array(data.classes)
    if data.paths is not None:
        arrays["paths"] = np.array([data.paths[row] for row in encoded.rows], np.str_)
    if data.split is not None and data.split.has_queries:
        for name, rows in (("query", data.split.query), ("database", data.split.database)):
            arrays[name] = encoded.positions(rows)
    if origin is not None and ("labels" in arrays or "paths" in arrays):
        arrays["source"], arrays["root"] = np.array(origin.source), np.array(origin.root)
        arrays["stamps"] = np.array([origin.stamps[row] for row in encoded.rows.tolist()], np.str_)
    if shard is not None:
        arrays["shard"] = np.array(shard)
    with whole_file(file) as opened:
        np.savez(opened, allow_pickle=False, **arrays)


logger = logging.getLogger(__name__)


def unreadable_list(out: Path) -> Path:
    """Return where the images missing from the file `out` are listed."""
    return out.with_name(f"{out.stem}.unreadable.txt")


def write_unreadable(reasons: Mapping[str, str], file: Path) -> None:
    """Write the reason for each path; without any, remove the file."""
    for path, reason in reasons.items():
        logger.info("left out %s: %s", path, reason)
    if not reasons:
        file.unlink(missing_ok=True)
        return
    with whole_file(file) as opened:
        opened.writelines(f"{path}\t{reason}\n".encode() for path, reason in reasons.items())


def read_unreadable(file: Path) -> dict[str, str]:
    """Return the reason for each path; a line that a killed process left unfinished is ignored."""
    if not file.exists():
        return {}
    lines = file.read_text(encoding="utf-8").split("\n")[:-1]
    return {path: reason for path, _, reason in (line.partition("\t") for line in lines)}
