"""Labelled images, and which of them train, ask and answer."""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float32, Int, Int64

from orbithash.errors import InputError


def no_rows() -> Int64[np.ndarray, " n"]:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers of the images that train, that are searched for, and that are searched.

    `train`, `query` and `database` may overlap, as they do in published benchmarks. `validation`
    is what settings are chosen on; it never overlaps `train` or `query`.
    """

    train: Int64[np.ndarray, " train"]
    query: Int64[np.ndarray, " query"]
    database: Int64[np.ndarray, " database"]
    validation: Int64[np.ndarray, " validation"] = field(default_factory=no_rows)

    def __post_init__(self) -> None:
        for name in ("train", "query", "database"):
            if len(getattr(self, name)) == 0:
                raise InputError(f"the split has no {name} images; give at least one row number")
        for name in ("train", "query", "database", "validation"):
            rows = getattr(self, name)
            if len(np.unique(rows)) < len(rows):
                raise InputError(f"the split names some {name} images twice; name each row once")
        for name in ("train", "query"):
            shared = np.intersect1d(self.validation, getattr(self, name)).size
            if shared:
                raise InputError(
                    f"{shared} validation images are {name} images too; "
                    "settings must be chosen on images that neither train nor are queries"
                )

    def check(self, n_images: int) -> None:
        """Raise unless every row number is one of `n_images` images."""
        for name in ("train", "query", "database", "validation"):
            rows = getattr(self, name)
            if len(rows) and (rows.min() < 0 or rows.max() >= n_images):
                raise InputError(
                    f"the split's {name} rows go from {rows.min()} to {rows.max()}, but there are "
                    f"{n_images} images; number them from 0 to {n_images - 1}"
                )


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images in memory with what is on them and how they are split.

    Labels are one number per image, or one column per class where an image may show several.
    """

    images: Float32[np.ndarray, "n channels height width"]
    labels: Int[np.ndarray, " m"] | Int[np.ndarray, "m classes"] | Bool[np.ndarray, "m classes"]
    classes: tuple[str, ...]
    split: Split

    def __post_init__(self) -> None:
        check_labels(self.labels, self.classes, n_images=len(self.images))
        self.split.check(len(self.images))

    def __len__(self) -> int:
        return len(self.images)

    def pixels(self) -> Float32[np.ndarray, "n pixels"]:
        """Each image as one row of numbers: the features of methods that have no network."""
        return self.images.reshape(len(self), -1)


def check_labels(
    labels: Int[np.ndarray, " m"] | Int[np.ndarray, "m classes"] | Bool[np.ndarray, "m classes"],
    classes: tuple[str, ...],
    *,
    n_images: int,
) -> None:
    """Raise unless there is a label for every image and a name for every label."""
    if len(labels) != n_images:
        raise InputError(f"got {len(labels)} labels for {n_images} images; give one per image")
    several = labels.ndim == 2
    n_classes = labels.shape[1] if several else int(labels.max()) + 1
    if n_classes > len(classes) or labels.min() < 0:
        raise InputError(
            f"the labels need {n_classes} classes from 0 on, but {len(classes)} are named"
        )
