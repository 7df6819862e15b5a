"""Images and their labels."""

from collections.abc import Callable
from pathlib import Path

from orbithash.data.base import LabelledImages, Split
from orbithash.data.bundled import digits
from orbithash.data.cub200_2011 import cub200_2011
from orbithash.data.features import (
    LabelledFeatures,
    Vectors,
    Views,
    read_features,
    read_vectors,
    write_features,
)
from orbithash.data.folder import all_images, class_folders
from orbithash.data.image_files import ImageFiles
from orbithash.data.published import HOMES
from orbithash.data.sampling import ClassBalancedBatches, ShuffledBatches, batches_by_labels
from orbithash.data.stanford_dogs import stanford_dogs
from orbithash.data.sun397 import sun397
from orbithash.data.table import image_table, is_table, write_image_table
from orbithash.data.trainable import check_trainable
from orbithash.data.validation import hold_out
from orbithash.data.voc2007 import voc2007
from orbithash.errors import InputError

__all__ = [
    "BENCHMARKS",
    "DATASETS",
    "HOMES",
    "ClassBalancedBatches",
    "ImageFiles",
    "LabelledFeatures",
    "LabelledImages",
    "ShuffledBatches",
    "Split",
    "Vectors",
    "Views",
    "all_images",
    "batches_by_labels",
    "check_trainable",
    "class_folders",
    "hold_out",
    "image_table",
    "is_table",
    "open_source",
    "read_features",
    "read_vectors",
    "write_features",
    "write_image_table",
]

# Read from the folder that its authors publish, written `name:folder`.
BENCHMARKS: dict[str, Callable[[Path], ImageFiles]] = {
    "cub200_2011": cub200_2011,
    "stanford_dogs": stanford_dogs,
    "sun397": sun397,
    "voc2007": voc2007,
}

DATASETS: dict[str, Callable[..., ImageFiles | LabelledImages]] = {"digits": digits, **BENCHMARKS}


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
