"""Image folders with one subfolder per class, whose name is the label."""

import logging
from pathlib import Path

import numpy as np

from orbithash.data.images import ImageFiles
from orbithash.data.splits import Split, default_split
from orbithash.errors import InputError

logger = logging.getLogger(__name__)

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif"})


def class_folders(folder: Path, *, seed: int = 0) -> ImageFiles:
    """Open all images beneath `folder`, each labelled with its top-level subfolder.

    Classes and images are in alphabetical order. Other files, hidden files and folders without
    images are skipped. `default_split` makes the split.
    """
    if not folder.is_dir():
        raise InputError(
            f"{folder} is not a folder; give a folder that contains one folder per class"
        )
    images = {
        entry.name: images_beneath(entry)
        for entry in sorted(folder.iterdir())
        if entry.is_dir() and not entry.name.startswith(".")
    }
    if empty := [name for name, files in images.items() if not files]:
        logger.warning(
            "%s: %d folders without images, for example %s", folder, len(empty), empty[0]
        )
    classes = tuple(name for name, files in images.items() if files)
    loose = sum(1 for entry in folder.iterdir() if is_image(entry))
    if not classes:
        raise InputError(
            f"{folder} has {loose} images but no folder with images; put the images of each class "
            "into a subfolder with the name of the class"
        )
    if loose:
        logger.warning("%s: %d images outside of any class folder are skipped", folder, loose)
    labels = np.repeat(np.arange(len(classes)), [len(images[name]) for name in classes])
    paths = tuple(file.relative_to(folder).as_posix() for name in classes for file in images[name])
    return ImageFiles(
        root=folder,
        paths=paths,
        labels=labels,
        classes=classes,
        split=default_split(labels, paths, seed=seed),
    )


def all_images(folder: Path) -> ImageFiles:
    """Open all images beneath `folder` for encoding, without classes or a split.

    Images outside of any class folder have the class "". Every image is in every part of the split.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; give a folder that contains images")
    paths = [file.relative_to(folder) for file in images_beneath(folder)]
    names = [path.parts[0] if len(path.parts) > 1 else "" for path in paths]
    classes = tuple(sorted(set(names)))
    label_of = {name: label for label, name in enumerate(classes)}
    rows = np.arange(len(paths))
    if not paths:
        raise InputError(f"there are no images in {folder}; check the path")
    return ImageFiles(
        root=folder,
        paths=tuple(path.as_posix() for path in paths),
        labels=np.array([label_of[name] for name in names], dtype=np.int64),
        classes=classes,
        split=Split(train=rows, query=rows, database=rows),
    )


def images_beneath(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if is_image(path))


def is_image(path: Path) -> bool:
    """Return whether a file has the name of an image; it is not opened."""
    return (
        path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".") and path.is_file()
    )
