"""Codes of what a source holds, by the encoder that fits it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64, UInt8

from orbithash.data import ImageFiles, LabelledFeatures, Vectors
from orbithash.encoders.feature_encoder import FeatureEncoder
from orbithash.encoders.image_encoder import ImageEncoder
from orbithash.encoders.runtime import choose_runtime
from orbithash.errors import InputError


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
    if isinstance(data, ImageFiles):
        if not isinstance(encoder, ImageEncoder):
            raise InputError(
                f"this run encodes features of {encoder.n_features} numbers, not images; make them "
                "with `orbithash features`, by the network that it was trained on"
            )
        wanted = np.arange(len(data)) if rows is None else rows
        files = [data.file(int(row)) for row in wanted]
        done = encoder.embed_files(
            files,
            runtime=choose_runtime(encoder.network, n_images=len(files)),
            progress=lambda n: progress(n, len(files)),
        )
        paths = {data.file(int(row)): data.paths[row] for row in wanted[~done.readable]}
        unreadable = {paths[file]: reason for file, reason in done.unreadable.items()}
        return EncodedRows(done.codes(), wanted[done.readable], unreadable)
    if isinstance(encoder, ImageEncoder):
        raise InputError("this run encodes images, not features; give the images themselves")
    wanted = np.arange(len(data.features)) if rows is None else rows
    return EncodedRows(encoder.encode(data.features[wanted]), wanted, {})
