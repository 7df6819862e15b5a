"""Batches that contain triplets.

A batcher is called with the number of the epoch and yields row positions, one array per batch.
The same seed and epoch always give the same batches, so a run can be repeated, or taken up again
in the middle.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int, Int64

from orbithash.errors import InputError

TRIPLET = 3  # images: an anchor, one that is related and one that is not
BATCHES_PER_EPOCH = 4  # at least: so many steps are worth an epoch's name


def batches_by_labels(
    labels: Int[np.ndarray, " n"] | Int[np.ndarray, "n classes"] | Bool[np.ndarray, "n classes"],
    *,
    batch_size: int,
    images_per_class: int,
    seed: int,
) -> "ClassBalancedBatches | ShuffledBatches":
    """Classes × images where images have one label, shuffled where they have several.

    A batch has `batch_size` images, or a quarter of all where these are few, or what comes nearest
    below with the same number of each class; more than `images_per_class` if the classes are few.
    It has never fewer than a triplet.
    """
    batch_size = min(batch_size, max(TRIPLET, len(labels) // BATCHES_PER_EPOCH))
    if labels.ndim == 2:
        return ShuffledBatches(len(labels), min(len(labels), max(TRIPLET, batch_size)), seed=seed)
    n_classes = len(np.unique(labels))
    classes_per_batch = max(2, min(n_classes, batch_size // images_per_class))
    return ClassBalancedBatches(
        labels, classes_per_batch, max(2, batch_size // classes_per_batch), seed=seed
    )


@dataclass(frozen=True, eq=False)
class ShuffledBatches:
    """All images once per epoch, in random order; a last batch that is not full is left out.

    Works for any labels, because it never looks at them.
    """

    n_images: int
    batch_size: int
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.batch_size <= self.n_images:
            raise InputError(
                f"batch_size={self.batch_size} for {self.n_images} images; "
                "a batch needs at least one image and at most all of them"
            )

    def __len__(self) -> int:
        return self.n_images // self.batch_size

    def __call__(self, epoch: int) -> Iterator[Int64[np.ndarray, " batch"]]:
        order = np.random.default_rng([self.seed, epoch]).permutation(self.n_images)
        yield from order[: len(self) * self.batch_size].reshape(len(self), self.batch_size)


@dataclass(frozen=True, eq=False)
class ClassBalancedBatches:
    """So many random classes per batch, and so many random images of each.

    With at least two classes and two images of each, every image of every batch has a positive and
    a negative. An epoch has as many batches as would show each image once; classes with fewer
    images repeat theirs, but within a batch only those that have not enough for it. Images of
    several labels belong to no one class: use `ShuffledBatches`.
    """

    labels: Int[np.ndarray, "..."]
    classes_per_batch: int
    images_per_class: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.labels.ndim != 1:
            raise InputError(
                f"got labels of shape {self.labels.shape}; batches by class need one label per "
                "image: use ShuffledBatches for images of several labels"
            )
        n_classes = len(np.unique(self.labels))
        if not 2 <= self.classes_per_batch <= n_classes or self.images_per_class < 2:
            raise InputError(
                f"{self.classes_per_batch} classes × {self.images_per_class} images per batch from "
                f"{n_classes} classes; a triplet needs at least 2 × 2 and classes that exist"
            )

    @property
    def batch_size(self) -> int:
        return self.classes_per_batch * self.images_per_class

    def __len__(self) -> int:
        return max(1, len(self.labels) // self.batch_size)

    def __call__(self, epoch: int) -> Iterator[Int64[np.ndarray, " batch"]]:
        rng = np.random.default_rng([self.seed, epoch])
        # Each class deals its shuffled images from the top and shuffles anew when they run out.
        decks = [_Deck(np.flatnonzero(self.labels == c), rng) for c in np.unique(self.labels)]
        for _ in range(len(self)):
            chosen = rng.choice(len(decks), self.classes_per_batch, replace=False)
            yield np.concatenate([decks[c].deal(self.images_per_class) for c in chosen])


class _Deck:
    """The images of a class in random order, dealt from the top and shuffled anew when at an end.

    No image comes twice in one deal, unless the class has fewer than are asked for.
    """

    def __init__(self, rows: Int64[np.ndarray, " n"], rng: np.random.Generator) -> None:
        self.rows, self.rng = rows, rng
        self.left = rng.permutation(rows)

    def deal(self, count: int) -> Int64[np.ndarray, " {count}"]:
        dealt = self.left[:count]
        self.left = self.left[count:]
        while len(dealt) < count:
            shuffled = self.rng.permutation(self.rows)
            # What this deal holds already goes to the bottom.
            again = np.isin(shuffled, dealt)
            deck = np.concatenate([shuffled[~again], shuffled[again]])
            missing = count - len(dealt)
            dealt, self.left = np.concatenate([dealt, deck[:missing]]), deck[missing:]
        return dealt
