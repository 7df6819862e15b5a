"""Codes of all items of a source, and the file they are written to.

ids      int64 (n,)             row numbers in the source
codes    uint8 (n, bytes)
n_bits   int
labels   as in the source, where known
paths    str (n,), where known
"""

from pathlib import Path

import numpy as np
from jaxtyping import Int64

from orbithash.encoders.encoder import Data, Encoded, Encoder, Progress, no_progress
from orbithash.files import whole_file


def encode_source(
    encoder: Encoder,
    data: Data,
    *,
    rows: Int64[np.ndarray, " wanted"] | None = None,
    progress: Progress = no_progress,
) -> Encoded:
    """Encode these rows of a source, or all; unreadable images are left out and listed."""
    if rows is None:
        rows = np.arange(len(data))
    (encoded,) = encoder.embed_batches(data, [rows], progress)
    return encoded


def write_codes(file: Path, encoded: Encoded, data: Data) -> None:
    """Write codes to an `.npz`, with labels and paths where the source has them."""
    arrays: dict[str, np.ndarray] = {
        "ids": encoded.rows,
        "codes": encoded.codes,
        "n_bits": np.array(encoded.embeddings.shape[1]),
    }
    if data.labels is not None:
        arrays["labels"] = data.labels[encoded.rows]
    if data.paths is not None:
        arrays["paths"] = np.array([data.paths[row] for row in encoded.rows])
    with whole_file(file) as opened:
        np.savez(opened, allow_pickle=False, **arrays)
