"""Sources as the commands take them: image files, or features in an .npz."""

from pathlib import Path
from typing import TYPE_CHECKING

from orbithash.errors import InputError

if TYPE_CHECKING:
    from orbithash.data import ImageFiles


def holds_features(source: str) -> bool:
    return Path(source).suffix.lower() == ".npz"


def image_files(source: str) -> "ImageFiles":
    """The labelled image files that a source names."""
    from orbithash.data import ImageFiles, open_source  # --help must not wait for torch

    images = open_source(source)
    if not isinstance(images, ImageFiles):
        raise InputError(
            f"{source} has no image files; give a folder, a .csv, a .parquet or NAME:FOLDER"
        )
    return images


def images_to_encode(source: str) -> "ImageFiles":
    """The image files that a source names; codes need no split, and those of a folder no class."""
    from orbithash.data import all_images, image_table, is_table  # --help must not wait for torch

    path = Path(source)
    if path.is_dir():
        return all_images(path)
    return image_table(path, undivided=True) if is_table(path) else image_files(source)


def absolute_source(source: str) -> str:
    """The same source by a name that means it from any folder.

    >>> absolute_source("voc2007:/data/VOC2007")
    'voc2007:/data/VOC2007'
    """
    from orbithash.data.absolute_name import absolute_name  # --help must not wait for torch

    name, colon, folder = source.partition(":")
    if colon and not Path(source).exists():
        return f"{name}:{absolute_name(folder)}"
    return absolute_name(source)
