"""Questions to an index in the words of its user: images in, paths with labels out."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from orbithash.data import read_vectors
from orbithash.encoders.feature_encoder import FeatureEncoder
from orbithash.encoders.image_encoder import ImageEncoder
from orbithash.encoders.runs.run_folder import encoder_of
from orbithash.errors import DamagedIndexError, InputError
from orbithash.index import Ball, Index, Metadata, Where
from orbithash.index.checks import as_ids

DEFAULT_K = 10


@dataclass(frozen=True)
class Hit:
    """A stored item that answers a query."""

    rank: int
    distance: int
    id: int
    path: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """What an index found for one query, nearest first."""

    query: str  # the path of the image, or of the stored item that was asked with
    hits: tuple[Hit, ...]


def answers(
    index: Index,
    images: Sequence[str | Path] = (),
    *,
    encoder: FeatureEncoder | ImageEncoder | None = None,
    like: Sequence[int] = (),
    k: int | None = None,
    radius: int | None = None,
    where: Where | None = None,
) -> list[Answer]:
    """The nearest items of images, and of stored items by their ids.

    With a radius all items within it, at most `k`; without, the `k` nearest, 10 unless told. A
    stored item is not an answer to itself. An index of features takes files of them, `.npz`. The
    index's own encoder is loaded, unless it is given.
    """
    stored = index.get(as_ids(like))
    codes, names = (
        encoded(encoder or encoder_of(index), images) if images else (stored.codes[:0], [])
    )
    names += [item.path or str(i) for i, item in zip(like, stored.metadata, strict=True)]
    queries = np.concatenate([codes, stored.codes])
    if radius is None:
        k = k or DEFAULT_K
        # One more than wanted, because a stored item finds itself.
        nearest = index.search(queries, k + bool(like), where)
        found = [Ball(*pair) for pair in zip(nearest.ids, nearest.distances, strict=True)]
    else:
        found = index.within(queries, radius, where)
    itself = [None] * len(codes) + list(like)
    return [
        Answer(name, hits_of(index, without(ball, own)[:k]))
        for name, ball, own in zip(names, found, itself, strict=True)
    ]


def encoded(
    encoder: FeatureEncoder | ImageEncoder, images: Sequence[str | Path]
) -> tuple[UInt8[np.ndarray, "n bytes"], list[str]]:
    """Codes and names of images, or of the rows of files of features."""
    if isinstance(encoder, ImageEncoder):
        return encoder.encode(list(images)), [str(image) for image in images]
    parts: list[np.ndarray] = []
    names: list[str] = []
    for file in map(Path, images):
        if file.suffix.lower() != ".npz":
            raise InputError(
                f"this index holds codes of features, not of images; instead of {file} give an "
                ".npz that `orbithash features` made, or ask with --like ID"
            )
        vectors = read_vectors(file)
        parts.append(encoder.encode(vectors.features))
        names += vectors.paths or [f"{file} row {row}" for row in range(len(vectors.features))]
    return np.concatenate(parts), names


def without(ball: Ball, identifier: int | None) -> list[tuple[int, int]]:
    """Pairs of distance and id, but for the item itself and places where nothing was found."""
    pairs = zip(ball.distances.tolist(), ball.ids.tolist(), strict=True)
    return [(distance, i) for distance, i in pairs if distance >= 0 and i != identifier]


def hits_of(index: Index, pairs: list[tuple[int, int]]) -> tuple[Hit, ...]:
    items = still_there(index, [i for _, i in pairs])
    present = [(distance, i, items[i][1]) for distance, i in pairs if i in items]
    return tuple(
        Hit(rank, distance, i, metadata.path, metadata.labels)
        for rank, (distance, i, metadata) in enumerate(present, start=1)
    )


def still_there(index: Index, ids: Sequence[int]) -> dict[int, tuple[bytes, Metadata]]:
    """Code and metadata by id of what a search found; what was removed meanwhile is left out."""
    if not ids:
        return {}
    try:
        items = index.get(np.array(ids, dtype=np.int64))
    except DamagedIndexError:
        raise
    except InputError:
        # Each half by itself, until what has gone is alone.
        half = len(ids) // 2
        return still_there(index, ids[:half]) | still_there(index, ids[half:]) if half else {}
    codes = (code.tobytes() for code in items.codes)
    return dict(zip(ids, zip(codes, items.metadata, strict=True), strict=True))
