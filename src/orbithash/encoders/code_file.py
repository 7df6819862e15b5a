"""Codes in a file: one `.npz` that any numpy reads.

ids      int64 (n,)             row numbers of what was encoded
codes    uint8 (n, bytes)
n_bits   int
labels   as in the source, where known
paths    str (n,), where known
"""

from pathlib import Path

import numpy as np

from orbithash.data import ImageFiles, LabelledFeatures, Vectors
from orbithash.data.whole_file import whole_file
from orbithash.encoders.encode_source import EncodedRows


def write_codes(
    file: Path, encoded: EncodedRows, n_bits: int, data: ImageFiles | LabelledFeatures | Vectors
) -> None:
    """Write the codes with what else is known of what they belong to."""
    arrays: dict[str, np.ndarray] = {
        "ids": encoded.rows,
        "codes": encoded.codes,
        "n_bits": np.array(n_bits),
    }
    if data.labels is not None:
        arrays["labels"] = data.labels[encoded.rows]
    if data.paths is not None:
        arrays["paths"] = np.array([data.paths[row] for row in encoded.rows])
    with whole_file(file) as opened:
        np.savez(opened, allow_pickle=False, **arrays)
