"""Labelled images: files on disk, or the items of a torch Dataset."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int

from orbithash.data.splits import Split
from orbithash.errors import InputError, UnreadableImageError

Labels = Int[np.ndarray, " m"] | Int[np.ndarray, "m classes"] | Bool[np.ndarray, "m classes"]


@runtime_checkable
class ImageSource(Protocol):
    """Images with labels and a split: files, or a dataset in memory.

    Labels are one number per image, or one column per class where an image may have several.
    """

    @property
    def paths(self) -> tuple[str, ...]:
        """A name for each image."""

    @property
    def labels(self) -> Labels: ...

    @property
    def classes(self) -> tuple[str, ...]: ...

    @property
    def split(self) -> Split: ...

    def __len__(self) -> int: ...

    def image(self, row: int) -> Any:
        """Return one image: its path, a PIL image, or an array of pixels."""

    def stamp(self, row: int) -> str:
        """Return a text that differs when the image has changed; "missing" if it is not there."""

    def __str__(self) -> str:
        """Return the name of the source, for messages."""


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Image files with labels and a split.

    `paths` are relative to `root`, with forward slashes, so that they are the same on every
    machine.
    """

    root: Path
    paths: tuple[str, ...]
    labels: Labels
    classes: tuple[str, ...]
    split: Split
    # Relative paths of folders and links beneath which there may be more, with the reason.
    unlisted: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.paths:
            raise InputError(f"there are no images in {self.root}; check the path")
        check_text((str(self.root), *self.paths, *self.classes), f"the source {self.root}")
        check_class_names(self.labels, self.classes, n_images=len(self.paths))
        self.split.check(len(self.paths))

    def __len__(self) -> int:
        return len(self.paths)

    def __str__(self) -> str:
        return str(self.root)

    def file(self, row: int) -> Path:
        return self.root / self.paths[row]

    def image(self, row: int) -> Path:
        return self.file(row)

    def stamp(self, row: int) -> str:
        try:
            status = self.file(row).stat()
        except (FileNotFoundError, NotADirectoryError):
            return "missing"
        except OSError:
            return "unreadable"
        return f"{status.st_size} {status.st_mtime_ns}"


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """The items of a torch Dataset of (image, label); all of them train."""

    dataset: Any
    paths: tuple[str, ...]
    labels: Labels
    classes: tuple[str, ...]
    split: Split

    def __len__(self) -> int:
        return len(self.paths)

    def __str__(self) -> str:
        return type(self.dataset).__name__

    def image(self, row: int) -> Any:
        """Return the pixels of one item, as an array of (height, width, channels) or a PIL image.

        A tensor has its channels first, and floats in it are in [0, 1], as torchvision's transforms
        make them.
        """
        try:
            image = self.dataset[row][0]
        except (OSError, ValueError) as error:
            raise UnreadableImageError(Path(self.paths[row]), str(error)) from error
        if not hasattr(image, "detach"):
            return image
        pixels = image.detach().cpu().numpy()
        if pixels.dtype.kind == "f":
            if pixels.size and not (pixels.min() >= 0 and pixels.max() <= 1):
                raise InputError(
                    f"{self.paths[row]} of {self} has values from {pixels.min():g} to "
                    f"{pixels.max():g}; give floats in [0, 1] or uint8, without normalisation: the "
                    "backbone normalises"
                )
            pixels = np.round(255 * pixels).astype(np.uint8)
        return np.moveaxis(pixels, 0, -1) if pixels.ndim == 3 else pixels

    def stamp(self, row: int) -> str:
        try:
            pixels = np.ascontiguousarray(np.asarray(self.image(row)))
        except UnreadableImageError:
            return "unreadable"
        return hashlib.blake2b(pixels.tobytes(), digest_size=8).hexdigest()


def read_dataset(dataset: Any) -> ImageDataset:
    """Wrap a dataset of (image, label); labels are its `targets`, or those of its items."""
    try:
        targets = getattr(dataset, "targets", None)
        transformed = getattr(dataset, "target_transform", None) is not None
        if targets is None or transformed or len(targets) != len(dataset):
            targets = [dataset[row][1] for row in range(len(dataset))]
        labels = np.stack([np.asarray(label) for label in targets])
    except (TypeError, ValueError, LookupError, RuntimeError, OSError) as error:
        raise InputError(
            f"cannot read the labels of {type(dataset).__name__}: {error}; its items must be "
            "(image, label), each label a number or a row of 0 and 1"
        ) from None
    single = labels.ndim == 1 and labels.dtype.kind in "iu"
    several = labels.ndim == 2 and labels.dtype.kind in "biu" and np.isin(labels, (0, 1)).all()
    if not single and not several:
        raise InputError(
            f"the labels of {type(dataset).__name__} are {labels.dtype} of shape {labels.shape}; "
            "its items must be (image, label), each label a whole number or a row of 0 and 1"
        )
    n_classes = labels.shape[1] if several else int(labels.max()) + 1
    classes = getattr(dataset, "classes", None)
    names = tuple(map(str, range(n_classes) if classes is None else classes))
    labels = labels.astype(np.int64) if single else labels.astype(bool)
    check_class_names(labels, names, n_images=len(dataset))
    return ImageDataset(
        dataset=dataset,
        paths=tuple(f"item {row}" for row in range(len(dataset))),
        labels=labels,
        classes=names,
        split=Split(train=np.arange(len(dataset))),
    )


def check_text(texts: Iterable[str], what: str) -> None:
    """Raise unless all texts can be names: without NUL, and complete characters, as UTF-8 needs."""
    for text in texts:
        if "\0" in text or not is_unicode(text):
            raise InputError(f"{what} has {text!r}, which is not valid text; save it as UTF-8")


def check_storable(name: str) -> None:
    """Raise unless an index can store the name of a file or folder."""
    if "\0" in name or not is_unicode(name):
        raise InputError(f"the name {name!r} is not valid text; rename the file or folder")


def is_unicode(text: str) -> bool:
    """Return whether a text can be written as UTF-8; names of files may be any bytes."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def check_class_names(labels: Labels, classes: tuple[str, ...], *, n_images: int) -> None:
    """Raise unless there is a label for every image and a name for every label."""
    if len(labels) != n_images:
        raise InputError(f"got {len(labels)} labels for {n_images} images; give one per image")
    n_classes = labels.shape[1] if labels.ndim == 2 else int(labels.max()) + 1
    if n_classes > len(classes) or labels.min() < 0:
        raise InputError(
            f"the labels need {n_classes} classes from 0 on, but {len(classes)} are named"
        )
