"""Relevance by labels: images that share a label are related.

one label       int (n,)                 related = equal
several labels  bool or 0-1 (n, classes) related = at least one in common; their number is the grade
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int, Int32, Int64, Shaped

from orbithash.errors import InputError


def related(
    left: Shaped[np.ndarray, "n *classes"], right: Shaped[np.ndarray, "m *classes"]
) -> Bool[np.ndarray, "n m"]:
    """Return whether each pair of images shares a label.

    >>> related(np.array([0, 1]), np.array([1, 0, 2]))
    array([[False,  True, False],
           [ True, False, False]])
    """
    return labels_in_common(left, right) > 0


def labels_in_common(
    left: Shaped[np.ndarray, "n *classes"], right: Shaped[np.ndarray, "m *classes"]
) -> Int32[np.ndarray, "n m"]:
    """Return the number of labels that each pair of images shares; 0 or 1 with one label each.

    >>> labels_in_common(np.array([[1, 1, 0]]), np.array([[1, 1, 1], [0, 1, 0], [0, 0, 1]]))
    array([[2, 1, 0]], dtype=int32)
    """
    common: np.ndarray
    if left.ndim == 1:
        common = left[:, None] == right[None, :]
    else:
        # As floats, whose matrix product is fast; exact up to 2^24 classes. Some BLAS loops also
        # compute with memory beyond small matrices, which numpy reports as an invalid value.
        with np.errstate(invalid="ignore"):
            common = left.astype(np.float32) @ right.astype(np.float32).T
    return common.astype(np.int32)


def check_labels(labels: np.ndarray, n: int, name: str) -> Shaped[np.ndarray, "n *classes"]:
    """Return labels of `n` images as int64 or bool; `name` is their owner in error messages."""
    if labels.ndim not in (1, 2) or labels.dtype.kind not in "biuf":
        raise InputError(
            f"got {name} labels of shape {labels.shape} and type {labels.dtype}; pass integers "
            "of shape (images,), or 0-1 of shape (images, classes)"
        )
    if len(labels) != n:
        raise InputError(
            f"got {len(labels)} {name} labels for {n} {name} codes; pass one row of labels per code"
        )
    if labels.ndim == 1 and labels.dtype.kind in "bf":
        raise InputError(
            f"got {name} labels of type {labels.dtype}; number the classes with integers"
        )
    if labels.ndim == 2 and not np.all((labels == 0) | (labels == 1)):
        raise InputError(
            f"got {name} labels of shape {labels.shape} that are not all 0 or 1; mark each "
            "image's classes with 1, or pass one class number per image in shape (images,)"
        )
    return labels.astype(np.int64 if labels.ndim == 1 else np.bool_)


def check_same_kind(
    query_labels: Shaped[np.ndarray, "queries *query_classes"],
    database_labels: Shaped[np.ndarray, "database *database_classes"],
) -> None:
    """Raise unless the labels of queries and database can be compared."""
    if query_labels.shape[1:] != database_labels.shape[1:]:
        raise InputError(
            f"got query labels of shape {query_labels.shape} and database labels of shape "
            f"{database_labels.shape}; both need one class number per image, or 0-1 columns of "
            "the same classes"
        )


@dataclass(frozen=True)
class LabelGroups:
    """Images grouped by their set of labels: all images of a group have the same related images.

    `group` is the group of each image. `order` lists the images group by group, in their original
    order inside a group; group g is `order[starts[g] : starts[g + 1]]`, with labels `labels[g]`.
    """

    labels: Shaped[np.ndarray, "groups *classes"]
    group: Int64[np.ndarray, " n"]
    order: Int64[np.ndarray, " n"]
    starts: Int64[np.ndarray, " groups_and_end"]


def group_by_labels(labels: Shaped[np.ndarray, "n *classes"]) -> LabelGroups:
    """Group images that have the same labels.

    >>> groups = group_by_labels(np.array([7, 3, 7]))
    >>> groups.labels, groups.group, groups.order, groups.starts
    (array([3, 7]), array([1, 0, 1]), array([1, 0, 2]), array([0, 1, 3]))
    """
    keys = label_keys(labels)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    is_start = np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(keys)]
    starts = np.append(np.flatnonzero(is_start), len(keys))
    group = np.empty(len(keys), dtype=np.int64)
    group[order] = np.cumsum(is_start) - 1
    return LabelGroups(labels=labels[order[is_start]], group=group, order=order, starts=starts)


def label_keys(labels: Shaped[np.ndarray, "n *classes"]) -> Int[np.ndarray, " n"]:
    """Return integers that are equal where the labels are, in the type that sorts fastest."""
    if labels.ndim == 2:
        # np.unique compares rows byte by byte, so eight labels go into a byte.
        packed = np.packbits(labels.astype(bool), axis=1)
        labels = np.unique(packed, axis=0, return_inverse=True)[1].reshape(-1)
    # numpy sorts 16-bit integers by radix, several times as fast as 64-bit ones by comparison.
    fits = labels.min(initial=0) >= -(1 << 15) and labels.max(initial=0) < 1 << 15
    return labels.astype(np.int16) if fits else labels
