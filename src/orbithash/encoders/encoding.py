"""Codes of all that a source holds, and the file they are written to.

ids      int64 (n,)             row numbers of what was encoded
codes    uint8 (n, bytes)
n_bits   int
labels   as in the source, where known
paths    str (n,), where known
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64, UInt8

from orbithash.data import ImageFiles, LabelledFeatures, Vectors
from orbithash.encoders.feature_encoder import FeatureEncoder
from orbithash.encoders.image_encoder import ImageEncoder
from orbithash.encoders.runtime import choose_runtime
from orbithash.errors import InputError
from orbithash.files import whole_file


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Codes with the row numbers of what they belong to; what cannot be read has none."""

    codes: UInt8[np.ndarray, "n bytes"]
    rows: Int64[np.ndarray, " n"]
    unreadable: dict[str, str]  # the reason by path


def encode_source(
    encoder: FeatureEncoder | ImageEncoder,
    data: ImageFiles | LabelledFeatures | Vectors,
    *,
    rows: Int64[np.ndarray, " wanted"] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> EncodedRows:
    """The codes of these rows, or of all; `progress` is told how many are done, and of how many."""
    if rows is None:
        rows = np.arange(len(data if isinstance(data, ImageFiles) else data.features))
    (encoded,) = encode_in_parts(encoder, data, [rows], progress=progress)
    return encoded


def encode_in_parts(
    encoder: FeatureEncoder | ImageEncoder,
    data: ImageFiles | LabelledFeatures | Vectors,
    parts: Sequence[Int64[np.ndarray, " _"]],
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[EncodedRows]:
    """The codes of each part's rows, one part after the other; `progress` counts over all parts."""
    if isinstance(data, ImageFiles):
        if not isinstance(encoder, ImageEncoder):
            raise InputError(
                f"this run encodes features of {encoder.n_features} numbers, not images; make them "
                "with `orbithash features`, by the network that it was trained on"
            )
        yield from images_in_parts(encoder, data, parts, progress)
        return
    if isinstance(encoder, ImageEncoder):
        raise InputError("this run encodes images, not features; give the images themselves")
    done, total = 0, sum(map(len, parts))
    for rows in parts:
        yield EncodedRows(encoder.encode(data.features[rows]), rows, {})
        done += len(rows)
        progress(done, total)


def images_in_parts(
    encoder: ImageEncoder,
    images: ImageFiles,
    parts: Sequence[Int64[np.ndarray, " _"]],
    progress: Callable[[int, int], None],
) -> Iterator[EncodedRows]:
    total = sum(map(len, parts))
    before = 0
    # One runtime for all parts: exporting takes long, and runtimes differ in the last digits.
    with encoder.described_by(choose_runtime(encoder.network, n_images=total)) as describe:
        for rows in parts:
            done = encoder.embed_files(
                [images.file(int(row)) for row in rows],
                describe=describe,
                progress=lambda n, before=before: progress(before + n, total),  # type: ignore[misc]
            )
            paths = {images.file(int(row)): images.paths[row] for row in rows[~done.readable]}
            unreadable = {paths[file]: reason for file, reason in done.unreadable.items()}
            yield EncodedRows(done.codes(), rows[done.readable], unreadable)
            before += len(rows)


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
