"""Labelled images that stay on disk until they are needed."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int

from orbithash.data.base import Split, check_labels
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
