"""What supervised hashers learn from: who belongs to which class, and pairs of images.

Labels come as one integer per image or as 0/1 per image and class. Both become the same table of
memberships; two images are similar if they have a class in common.
"""

from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from orbithash.errors import InputError
from orbithash.relevance import check_labels

ROUNDS_OF_DRAWING = 100


def memberships(X: Any, y: Any) -> Bool[np.ndarray, "n classes"]:
    """Which row of the features belongs to which class.

    >>> memberships([[0.1], [0.2], [0.3]], [5, 7, 5]).astype(int)
    array([[1, 0],
           [0, 1],
           [1, 0]])
    """
    if y is None:
        raise InputError(
            "this hasher requires y to be passed, but the target y is None; pass the labels, or "
            "take an unsupervised hasher ('itq', 'sh', 'lsh')"
        )
    labels = check_labels(whole_numbers(np.asarray(y)), len(X), "training")
    if labels.ndim == 2:
        return labels.astype(bool)
    classes, index = np.unique(labels, return_inverse=True)
    table: np.ndarray = index[:, None] == np.arange(len(classes))
    return table


def whole_numbers(labels: np.ndarray) -> np.ndarray:
    """Integers, if the labels are some in another type: scikit-learn passes them as any."""
    if labels.dtype.kind == "O":
        labels = np.array(labels.tolist())
    if labels.dtype.kind == "f" and np.isfinite(labels).all() and (labels % 1 == 0).all():
        labels = labels.astype(np.int64)
    return labels


def similar_pairs(
    members: Bool[np.ndarray, "n classes"], n_pairs: int, rng: np.random.RandomState
) -> Int[np.ndarray, "{n_pairs} 2"]:
    """Random pairs of two images of one class; every membership is first as often as another."""
    classes, images = np.nonzero(members.T)
    sizes = members.sum(axis=0)
    starts = np.cumsum(sizes) - sizes
    in_company = np.flatnonzero(sizes[classes] > 1)
    if not len(in_company):
        raise InputError("no two rows share a label; bring at least two rows of one class")
    first = rng.choice(in_company, n_pairs)
    size, start = sizes[classes[first]], starts[classes[first]]
    step = 1 + (rng.random_sample(n_pairs) * (size - 1)).astype(
        int
    )  # round the class, not to itself
    second = start + (first - start + step) % size
    return np.stack([images[first], images[second]], axis=1)


def dissimilar_pairs(
    members: Bool[np.ndarray, "n classes"], n_pairs: int, rng: np.random.RandomState
) -> Int[np.ndarray, "{n_pairs} 2"]:
    """Random pairs of two images that have no class in common."""
    found = np.empty((0, 2), dtype=int)
    for _ in range(ROUNDS_OF_DRAWING):
        drawn = rng.randint(len(members), size=(n_pairs, 2))
        similar = (members[drawn[:, 0]] & members[drawn[:, 1]]).any(axis=1)
        found = np.concatenate([found, drawn[~similar & (drawn[:, 0] != drawn[:, 1])]])
        if len(found) >= n_pairs:
            return found[:n_pairs]
    if not len(found):
        raise InputError("no two rows without a common label were found; bring a second class")
    return np.resize(found, (n_pairs, 2))


def check_both_kinds_of_pairs(members: Bool[np.ndarray, "n classes"]) -> None:
    """Raise an error unless some rows are similar and some are not."""
    rng = np.random.RandomState(0)
    similar_pairs(members, 1, rng)
    dissimilar_pairs(members, len(members), rng)
