"""Images and their labels."""

from collections.abc import Callable
from pathlib import Path

from orbithash.data.base import LabelledImages, Split
from orbithash.data.bundled import digits
from orbithash.data.cub200_2011 import cub200_2011
from orbithash.data.features import (
    LabelledFeatures,
    Vectors,
    read_features,
    read_vectors,
    write_features,
)
from orbithash.data.folder import class_folders
from orbithash.data.image_files import ImageFiles
from orbithash.data.sampling import ClassBalancedBatches, ShuffledBatches, batches_by_labels
from orbithash.data.table import image_table
from orbithash.data.trainable import check_trainable
from orbithash.data.validation import hold_out
from orbithash.errors import InputError

__all__ = [
    "BENCHMARKS",
    "DATASETS",
    "ClassBalancedBatches",
    "ImageFiles",
    "LabelledFeatures",
    "LabelledImages",
    "ShuffledBatches",
    "Split",
    "Vectors",
    "batches_by_labels",
    "check_trainable",
    "class_folders",
    "hold_out",
    "image_table",
    "open_source",
    "read_features",
    "read_vectors",
    "write_features",
]

# Read from the folder that its authors publish, written `name:folder`.
BENCHMARKS: dict[str, Callable[[Path], ImageFiles]] = {"cub200_2011": cub200_2011}

DATASETS: dict[str, Callable[..., ImageFiles | LabelledImages]] = {"digits": digits, **BENCHMARKS}


def open_source(source: str) -> ImageFiles | LabelledFeatures | LabelledImages:
    """What a user names: a folder of class folders, a `.csv`, an `.npz`, or a dataset.

    A benchmark is written `name:folder`, and what comes with the install by its name alone.
    """
    name, colon, folder = source.partition(":")
    if colon and name in BENCHMARKS:
        return BENCHMARKS[name](Path(folder))
    path = Path(source)
    if path.suffix.lower() == ".npz":
        return read_features(path)
    if path.suffix.lower() == ".csv":
        return image_table(path)
    if path.is_dir():
        return class_folders(path)
    if source in BENCHMARKS:
        raise InputError(f"{source} needs its folder; write {source}:FOLDER")
    if source in DATASETS:
        return DATASETS[source]()
    raise InputError(
        f"{source!r} is neither a folder, nor a .csv, nor an .npz, nor a dataset "
        f"({', '.join(name if name not in BENCHMARKS else f'{name}:FOLDER' for name in DATASETS)})"
    )
