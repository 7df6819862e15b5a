"""The split of images that come without one."""

import numpy as np
from jaxtyping import Bool, Int

from orbithash.data.base import Split
from orbithash.errors import InputError

QUERY_SHARE = 0.2


def default_split(
    labels: Int[np.ndarray, " n"] | Int[np.ndarray, "n classes"] | Bool[np.ndarray, "n classes"],
    *,
    seed: int = 0,
) -> Split:
    """A fifth of the images of each class are queries; all others train and are the database.

    A class of two to seven images gives one query, and a class of one image none. Images with
    several labels belong to no one class: of them a fifth at random are queries. The same images
    and seed always give the same split.
    """
    rng = np.random.default_rng(seed)
    if labels.ndim == 1:
        groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    else:
        groups = [np.arange(len(labels))]
    is_query = np.zeros(len(labels), dtype=bool)
    for rows in groups:
        n_queries = max(1, round(QUERY_SHARE * len(rows))) if len(rows) > 1 else 0
        is_query[rng.permutation(rows)[:n_queries]] = True
    if not is_query.any():
        raise InputError(
            f"no class of {len(labels)} images has two, so none can be searched for; "
            "give more images per class, or a table with a split"
        )
    rest = np.flatnonzero(~is_query)
    return Split(train=rest, query=np.flatnonzero(is_query), database=rest)
