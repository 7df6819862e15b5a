"""Codes in a file: one `.npz` that any numpy reads.

ids      int64 (n,)             row numbers of what was encoded
codes    uint8 (n, bytes)
n_bits   int
labels   as in the features, where known
paths    str (n,), where known
"""

from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from orbithash.data import Vectors
from orbithash.data.whole_file import whole_file


def write_codes(
    file: Path, codes: UInt8[np.ndarray, "n bytes"], n_bits: int, vectors: Vectors
) -> None:
    """Write the codes of these vectors with what else is known of them."""
    arrays: dict[str, np.ndarray] = {
        "ids": np.arange(len(codes), dtype=np.int64),
        "codes": codes,
        "n_bits": np.array(n_bits),
    }
    if vectors.labels is not None:
        arrays["labels"] = vectors.labels
    if vectors.paths is not None:
        arrays["paths"] = np.array(vectors.paths)
    with whole_file(file) as opened:
        np.savez(opened, allow_pickle=False, **arrays)
