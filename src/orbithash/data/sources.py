"""Sources: the folder, table, features file or dataset that a user names, opened."""

from pathlib import Path

from orbithash.data.benchmarks import BENCHMARKS, DATASETS
from orbithash.data.features import LabelledFeatures, read_features
from orbithash.data.folder import all_images, class_folders
from orbithash.data.images import ImageFiles, LabelledImages
from orbithash.data.table import image_table, is_table
from orbithash.errors import InputError
from orbithash.files import absolute_name


def open_source(source: str) -> ImageFiles | LabelledFeatures | LabelledImages:
    """What a user names: a folder of class folders, a table, features, or a dataset.

    A table ends in `.csv` or `.parquet` and features in `.npz`. A benchmark is written
    `name:folder`, and what comes with the install by its name alone.
    """
    name, colon, folder = source.partition(":")
    if colon and name in BENCHMARKS:
        return BENCHMARKS[name](Path(folder))
    path = Path(source)
    if path.suffix.lower() == ".npz":
        return read_features(path)
    if is_table(path):
        return image_table(path)
    if path.is_dir():
        return class_folders(path)
    if source in BENCHMARKS:
        raise InputError(f"{source} needs its folder; write {source}:FOLDER")
    if source in DATASETS:
        return DATASETS[source]()
    raise InputError(
        f"{source!r} is neither a folder, nor a .csv, .parquet or .npz, nor a dataset "
        f"({', '.join(name if name not in BENCHMARKS else f'{name}:FOLDER' for name in DATASETS)})"
    )


def holds_features(source: str) -> bool:
    return Path(source).suffix.lower() == ".npz"


def image_files(source: str) -> "ImageFiles":
    """The labelled image files that a source names."""
    images = open_source(source)
    if not isinstance(images, ImageFiles):
        raise InputError(
            f"{source} has no image files; give a folder, a .csv, a .parquet or NAME:FOLDER"
        )
    return images


def images_to_encode(source: str) -> "ImageFiles":
    """The image files that a source names; codes need no split, and those of a folder no class."""
    path = Path(source)
    if path.is_dir():
        return all_images(path)
    return image_table(path, undivided=True) if is_table(path) else image_files(source)


def absolute_source(source: str) -> str:
    """The same source by a name that means it from any folder.

    >>> absolute_source("voc2007:/data/VOC2007")
    'voc2007:/data/VOC2007'
    """
    name, colon, folder = source.partition(":")
    if colon and not Path(source).exists():
        return f"{name}:{absolute_name(folder)}"
    return absolute_name(source)
