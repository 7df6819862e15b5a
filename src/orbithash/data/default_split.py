"""The split of images that come without one."""

import hashlib
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from orbithash.data.base import Split
from orbithash.data.class_rows import rows_by_class
from orbithash.errors import InputError

QUERY_SHARE = 0.2
LEFT_TO_TRAIN = 2  # of every class: an anchor and a positive


def default_split(
    labels: Int[np.ndarray, " n"] | Int[np.ndarray, "n classes"] | Bool[np.ndarray, "n classes"],
    paths: Sequence[str],
    *,
    seed: int = 0,
) -> Split:
    """About a fifth of the images are queries; all others train and are the database.

    The seed and an image's own path decide whether it is a query, so that images which are added
    or removed later leave the others where they are: else a run would be scored on what it was
    trained on. Only where that would leave a class of three or more without any query, or with
    fewer than two images to train, is the image taken that comes nearest. A class of one or two
    images gives no query. Images of several labels count as one class.
    """
    places = places_of(paths, seed=seed)
    is_query = np.zeros(len(labels), dtype=bool)
    for rows in rows_by_class(labels):
        nearest_first = rows[np.argsort(places[rows], kind="stable")]
        wanted = max(1, int((places[rows] < QUERY_SHARE).sum()))
        is_query[nearest_first[: max(0, min(wanted, len(rows) - LEFT_TO_TRAIN))]] = True
    if not is_query.any():
        raise InputError(
            f"no class of the {len(labels)} images has three, so none can be searched for; "
            "give more images per class, or a table with a split"
        )
    rest = np.flatnonzero(~is_query)
    return Split(train=rest, query=np.flatnonzero(is_query), database=rest)


def places_of(paths: Sequence[str], *, seed: int) -> Float[np.ndarray, " n"]:
    """A number from 0 to 1 for every path, as if by chance, and the same on every machine."""
    digests = (hashlib.sha256(f"{seed}\n{path}".encode()).digest() for path in paths)
    return np.array([int.from_bytes(digest[:8], "big") / 2**64 for digest in digests])
