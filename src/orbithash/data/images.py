"""Labelled images: files on disk, or arrays in memory."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, Int

from orbithash.data.splits import Split
from orbithash.errors import InputError


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Image files with what is on them and how they are split.

    `paths` are relative to `root`, with forward slashes, so that they mean the same on every
    machine. Labels are one number per image, or one column per class where an image may show
    several.
    """

    root: Path
    paths: tuple[str, ...]
    labels: Int[np.ndarray, " m"] | Int[np.ndarray, "m classes"] | Bool[np.ndarray, "m classes"]
    classes: tuple[str, ...]
    split: Split

    def __post_init__(self) -> None:
        if not self.paths:
            raise InputError(f"there are no images in {self.root}; check the path")
        check_labels(self.labels, self.classes, n_images=len(self.paths))
        self.split.check(len(self.paths))

    def __len__(self) -> int:
        return len(self.paths)

    def file(self, row: int) -> Path:
        return self.root / self.paths[row]


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
