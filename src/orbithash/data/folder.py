"""A folder of class folders: the name of the folder that an image lies in is its label."""

import logging
from pathlib import Path

import numpy as np

from orbithash.data.images import ImageFiles
from orbithash.data.splits import Split, default_split
from orbithash.errors import InputError

logger = logging.getLogger(__name__)

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif"})


def class_folders(folder: Path, *, seed: int = 0) -> ImageFiles:
    """Every image beneath `folder`; its class is the first folder on the way to it.

    Classes and images are in alphabetical order. Other files, hidden files and folders without
    images are passed over. There is no split in a folder, so `default_split` makes one.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; give a folder that holds one folder per class")
    images = {
        entry.name: images_beneath(entry)
        for entry in sorted(folder.iterdir())
        if entry.is_dir() and not entry.name.startswith(".")
    }
    if empty := [name for name, files in images.items() if not files]:
        logger.warning("%s: %d folders without images, as %s", folder, len(empty), empty[0])
    classes = tuple(name for name, files in images.items() if files)
    loose = sum(1 for entry in folder.iterdir() if is_image(entry))
    if not classes:
        raise InputError(
            f"{folder} has {loose} images but no folder with images; put the images of each class "
            "into a folder of its own, named as the class"
        )
    if loose:
        logger.warning("%s: %d images outside of any class folder are left out", folder, loose)
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
    """Every image beneath `folder`, to be encoded: no class is needed, and nothing is split.

    What lies in no class folder has the class "", and every image is in every part of the split.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; give a folder that holds images")
    paths = [file.relative_to(folder) for file in images_beneath(folder)]
    names = [path.parts[0] if len(path.parts) > 1 else "" for path in paths]
    classes = tuple(sorted(set(names)))
    number = {name: label for label, name in enumerate(classes)}
    rows = np.arange(len(paths))
    if not paths:
        raise InputError(f"there are no images in {folder}; check the path")
    return ImageFiles(
        root=folder,
        paths=tuple(path.as_posix() for path in paths),
        labels=np.array([number[name] for name in names], dtype=np.int64),
        classes=classes,
        split=Split(train=rows, query=rows, database=rows),
    )


def images_beneath(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if is_image(path))


def is_image(path: Path) -> bool:
    """By its name alone; whether it can be read shows when it is."""
    return (
        path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".") and path.is_file()
    )
