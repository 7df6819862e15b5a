"""Batch samplers whose batches contain triplets.

A sampler is called with the number of the epoch and yields row positions, one array per batch.
The same seed and epoch always give the same batches, so a run can be repeated, or resumed in the
middle of an epoch.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int, Int64

from orbithash.errors import InputError

MIN_BATCH_SIZE = 3  # a triplet: an anchor, a related and an unrelated image
MIN_BATCHES_PER_EPOCH = 4
LABELLED_SHARE = 0.8  # of a batch with unlabelled images


def batches_by_labels(
    labels: Int[np.ndarray, " n"] | Int[np.ndarray, "n classes"] | Bool[np.ndarray, "n classes"],
    *,
    batch_size: int,
    images_per_class: int,
    seed: int,
) -> "ClassBalancedBatches | ShuffledBatches":
    """Return class-balanced batches for single labels, shuffled batches for several per image.

    - The batch size is at most `batch_size` and at most a quarter of all images, so that an epoch
      has at least four batches; but at least one triplet.
    - Class-balanced batches round it down to a multiple of the number of classes in a batch. If
      there are too few classes for `images_per_class` each, every class has more.
    """
    if labels.ndim == 2:
        return shuffled_batches(len(labels), batch_size=batch_size, seed=seed)
    batch_size = limited_size(batch_size, len(labels))
    n_classes = len(np.unique(labels))
    classes_per_batch = max(2, min(n_classes, batch_size // images_per_class))
    return ClassBalancedBatches(
        labels, classes_per_batch, max(2, batch_size // classes_per_batch), seed=seed
    )


def partly_labelled_batches(
    labels: Int[np.ndarray, " n"] | Int[np.ndarray, "n classes"] | Bool[np.ndarray, "n classes"],
    n_unlabelled: int,
    *,
    batch_size: int,
    images_per_class: int,
    seed: int,
) -> "PartlyLabelledBatches":
    """Return batches of which a fifth are unlabelled images, or all of these if they are fewer.

    The others are those of `batches_by_labels`, for four fifths of the batch size.
    """
    labelled = batches_by_labels(
        labels,
        batch_size=max(MIN_BATCH_SIZE, int(LABELLED_SHARE * batch_size)),
        images_per_class=images_per_class,
        seed=seed,
    )
    n_added = max(1, int(labelled.batch_size * (1 / LABELLED_SHARE - 1)))
    return PartlyLabelledBatches(
        labelled, len(labels), n_unlabelled, min(n_added, n_unlabelled), seed=seed
    )


def shuffled_batches(n_images: int, *, batch_size: int, seed: int) -> "ShuffledBatches":
    """Return shuffled batches of at most this size; an epoch has at least four, if it can."""
    batch_size = max(MIN_BATCH_SIZE, limited_size(batch_size, n_images))
    return ShuffledBatches(n_images, min(n_images, batch_size), seed=seed)


def limited_size(batch_size: int, n_images: int) -> int:
    return min(batch_size, max(MIN_BATCH_SIZE, n_images // MIN_BATCHES_PER_EPOCH))


@dataclass(frozen=True, eq=False)
class ShuffledBatches:
    """All images once per epoch, in random order; an incomplete last batch is dropped.

    Works with any labels, because it does not use them.
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
    """P random classes × K random images per batch (PK sampling).

    P is `classes_per_batch` and K `images_per_class`, both at least 2: then every image of a batch
    has a positive and a negative. The number of images in an epoch is that of the dataset; small
    classes repeat theirs. Within a batch, images repeat only in classes of fewer than K. Images of
    several labels have no single class: use `ShuffledBatches`.
    """

    labels: Int[np.ndarray, "..."]
    classes_per_batch: int
    images_per_class: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.labels.ndim != 1:
            raise InputError(
                f"got labels of shape {self.labels.shape}; batches by class need one label per "
                "image: use ShuffledBatches for images with several labels"
            )
        n_classes = len(np.unique(self.labels))
        if not 2 <= self.classes_per_batch <= n_classes or self.images_per_class < 2:
            raise InputError(
                f"{self.classes_per_batch} classes × {self.images_per_class} images per batch from "
                f"{n_classes} classes; there must be at least "
                "2 classes × 2 images, and no more classes than the data have"
            )

    @property
    def batch_size(self) -> int:
        return self.classes_per_batch * self.images_per_class

    def __len__(self) -> int:
        return max(1, len(self.labels) // self.batch_size)

    def __call__(self, epoch: int) -> Iterator[Int64[np.ndarray, " batch"]]:
        rng = np.random.default_rng([self.seed, epoch])
        classes = [
            _ShuffledRows(np.flatnonzero(self.labels == label), rng)
            for label in np.unique(self.labels)
        ]
        for _ in range(len(self)):
            drawn = rng.choice(len(classes), self.classes_per_batch, replace=False)
            yield np.concatenate([classes[c].draw(self.images_per_class) for c in drawn])


@dataclass(frozen=True, eq=False)
class PartlyLabelledBatches:
    """Batches of labelled images, to each of which unlabelled ones are added at its end.

    The positions of the unlabelled images follow those of the labelled. An epoch is one of the
    labelled images. The unlabelled ones are drawn in random order, all of them before any is
    repeated within an epoch.
    """

    labelled: "ClassBalancedBatches | ShuffledBatches"
    n_labelled: int
    n_unlabelled: int
    n_added: int  # to each batch
    seed: int = 0

    @property
    def batch_size(self) -> int:
        return self.labelled.batch_size + self.n_added

    def __len__(self) -> int:
        return len(self.labelled)

    def __call__(self, epoch: int) -> Iterator[Int64[np.ndarray, " batch"]]:
        rng = np.random.default_rng([self.seed, epoch, self.n_unlabelled])
        unlabelled = _ShuffledRows(self.n_labelled + np.arange(self.n_unlabelled), rng)
        for positions in self.labelled(epoch):
            yield np.concatenate([positions, unlabelled.draw(self.n_added)])


class _ShuffledRows:
    """The rows of a class in random order, reshuffled when exhausted.

    One draw repeats a row only if the class has fewer rows than are drawn.
    """

    def __init__(self, rows: Int64[np.ndarray, " n"], rng: np.random.Generator) -> None:
        self.rows, self.rng = rows, rng
        self.remaining = rng.permutation(rows)

    def draw(self, count: int) -> Int64[np.ndarray, " {count}"]:
        drawn = self.remaining[:count]
        self.remaining = self.remaining[count:]
        while len(drawn) < count:
            shuffled = self.rng.permutation(self.rows)
            # Rows that this draw already has come last.
            repeated = np.isin(shuffled, drawn)
            shuffled = np.concatenate([shuffled[~repeated], shuffled[repeated]])
            missing = count - len(drawn)
            drawn, self.remaining = (
                np.concatenate([drawn, shuffled[:missing]]),
                shuffled[missing:],
            )
        return drawn
