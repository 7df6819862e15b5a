"""Classes: their names, and which of them are held out of training.

An image is unseen if any of its labels is held out, otherwise seen. Only seen images train.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int64

from orbithash.data.features import LabelledFeatures
from orbithash.data.images import ImageDataset, ImageFiles, ImageSource, Labels
from orbithash.data.splits import Split
from orbithash.errors import InputError, label_hint


@runtime_checkable
class Labelled(Protocol):
    """Images, features or codes with labels."""

    @property
    def labels(self) -> Labels: ...

    @property
    def classes(self) -> tuple[str, ...] | None: ...


def class_names(data: Labelled, numbers: Iterable[int]) -> dict[int, str]:
    """Return the names of classes by number; the number if classes have no names that differ."""
    if not data.classes or len(set(data.classes)) < len(data.classes):
        return {number: str(number) for number in numbers}
    return {number: data.classes[number] for number in numbers}


def choose_held_out(
    data: Labelled, wanted: float | str | Sequence[str | int], *, seed: int
) -> tuple[str, ...]:
    """Return the names of the classes to hold out: a random share of all, or those wanted.

    A class is wanted by its name or number. Classes without names are named by their number.
    """
    names = class_names(data, present_classes(data.labels).tolist())
    if isinstance(wanted, int | float):
        if not 0 < wanted < 1:
            raise InputError(
                f"the share of classes to hold out is {wanted:g}; give a number between 0 and 1, "
                "or the names of classes"
            )
        n_drawn = max(1, round(wanted * len(names)))
        drawn = np.random.default_rng(seed).permutation(list(names))[:n_drawn]
        return tuple(names[number] for number in sorted(drawn.tolist()))
    known = set(names.values())
    chosen = []
    for each in [wanted] if isinstance(wanted, str) else wanted:
        name = each if isinstance(each, str) else names.get(int(each), str(each))
        if name not in known:
            hint = label_hint(name, list(names.values()))
            raise InputError(f"there is no class {name!r} to hold out; {hint}")
        chosen.append(name)
    if not chosen:
        raise InputError("got no classes to hold out; name some, or give a share such as 0.5")
    return tuple(name for name in names.values() if name in chosen)


def unseen_rows(data: Labelled, held_out: Collection[str]) -> Bool[np.ndarray, " n"]:
    """Return whether each image has a label that is held out."""
    numbers = held_out_numbers(data, held_out)
    if data.labels.ndim == 2:
        return np.asarray(data.labels[:, numbers].any(axis=1))
    return np.isin(data.labels, numbers)


def held_out_numbers(data: Labelled, held_out: Collection[str]) -> Int64[np.ndarray, " numbers"]:
    """Return the numbers of the classes of these names; other names are left out."""
    names = class_names(data, present_classes(data.labels).tolist())
    return np.array([number for number, name in names.items() if name in held_out], dtype=np.int64)


def seen_split(data: Labelled, split: Split, held_out: Collection[str]) -> Split:
    """Return the split with only seen images for training and validation."""
    is_unseen = unseen_rows(data, held_out)
    seen, validation = (rows[~is_unseen[rows]] for rows in (split.train, split.validation))
    n_left = len(present_classes(data.labels[seen]))
    if n_left < 2:
        raise InputError(
            f"holding out {len(held_out)} of {len(present_classes(data.labels))} classes leaves "
            f"only {n_left} with training images, and training needs at least two; hold out fewer"
        )
    return replace(split, train=seen, validation=validation)


def without_classes(
    data: ImageSource | LabelledFeatures, held_out: Collection[str]
) -> ImageSource | LabelledFeatures:
    """Return images or features of which only the seen ones train."""
    if not held_out:
        return data
    assert isinstance(data, LabelledFeatures | ImageFiles | ImageDataset)
    return replace(data, split=seen_split(data, data.split, held_out))


def present_classes(labels: Labels) -> Int64[np.ndarray, " numbers"]:
    """Return the numbers of the classes that images have.

    >>> present_classes(np.array([7, 3, 7])), present_classes(np.array([[0, 1, 1], [0, 1, 0]]))
    (array([3, 7]), array([1, 2]))
    """
    return np.flatnonzero(labels.any(axis=0)) if labels.ndim == 2 else np.unique(labels)
