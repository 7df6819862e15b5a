"""Sources: the folder, table, features file, dataset or arrays that a user gives, opened."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from orbithash.data.benchmarks import BENCHMARKS, DATASETS
from orbithash.data.features import (
    LabelledFeatures,
    Vectors,
    checked_features,
    checked_labels,
    read_features,
    read_vectors,
)
from orbithash.data.folder import all_images, class_folders
from orbithash.data.images import (
    ImageDataset,
    ImageFiles,
    ImageSource,
    check_storable,
    read_dataset,
)
from orbithash.data.splits import Split, no_rows
from orbithash.data.table import image_table, is_table
from orbithash.errors import InputError
from orbithash.files import absolute_name


def open_source(source: Any) -> ImageSource | LabelledFeatures:
    """Open labelled images or features.

    A path is a folder of class folders, a table (`.csv`, `.parquet`) or a features file (`.npz`); a
    benchmark is written `name:folder`, and a dataset that comes with the install by its name. In
    Python also `(features, labels)`, or a torch Dataset of (image, label): all of it trains.
    """
    if isinstance(source, LabelledFeatures | ImageSource):
        return source
    if isinstance(source, tuple) and len(source) == 2:
        return labelled_arrays(*source)
    if isinstance(source, np.ndarray):
        raise InputError(
            f"got an array of shape {source.shape} without labels; give (features, labels)"
        )
    if not isinstance(source, str | Path):
        if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
            return read_dataset(source)
        raise InputError(
            f"got a source of type {type(source).__name__}; give a path, (features, labels), or a "
            "Dataset of (image, label)"
        )
    return open_named(str(source))


def open_named(source: str) -> ImageFiles | LabelledFeatures:
    name, colon, folder = source.partition(":")
    if colon and name in BENCHMARKS:
        return BENCHMARKS[name](Path(folder))
    path = Path(source)
    if holds_features(source):
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


def open_unlabelled(source: Any) -> ImageSource | LabelledFeatures | Vectors:
    """Open images or features to encode: neither a split nor labels are needed."""
    if isinstance(source, Vectors):
        return source
    if isinstance(source, np.ndarray) or is_matrix(source):
        return Vectors(float_features(source))
    if isinstance(source, str | Path):
        path = Path(source)
        if holds_features(str(source)):
            return read_vectors(path)
        if path.is_dir():
            return all_images(path)
        if is_table(path):
            return image_table(path, undivided=True)
    return open_source(source)


def open_without_labels(source: Any) -> ImageSource | LabelledFeatures:
    """Open images or features to learn from them without labels: all have the class "".

    Labels may be missing and are ignored; a folder may hold images in any nesting. Queries of the
    source do not train: those of a table or features file, and of class folders those that
    `class_folders` would choose.
    """
    if isinstance(source, np.ndarray) or is_matrix(source):
        return labelled_arrays(source, np.zeros(len(source), dtype=np.int64))
    path = Path(source) if isinstance(source, str | Path) else None
    data: ImageSource | LabelledFeatures
    if path and holds_features(str(path)):
        data = read_features(path, labelled=False)
    elif path and path.is_dir():
        data = all_images(path)
    elif path and is_table(path):
        data = image_table(path, labelled=False)
    else:
        data = open_source(source)
    assert isinstance(data, ImageFiles | ImageDataset | LabelledFeatures)
    train = np.setdiff1d(data.split.train, data.split.query)
    return replace(
        data,
        labels=np.zeros(len(data), dtype=np.int64),
        classes=("",),
        split=replace(data.split, train=train, validation=no_rows()),
    )


def with_unlabelled(
    data: ImageSource | LabelledFeatures, source: Any
) -> ImageSource | LabelledFeatures:
    """Return the data with images, or features, of another source that train without labels.

    Queries of that source are left out, and so are images that the data have already.
    """
    more = open_without_labels(source)
    rows = more.split.train
    if isinstance(data, ImageFiles) and isinstance(more, ImageFiles):
        known = {str(data.file(row).resolve()) for row in range(len(data))}
        files = [str(more.file(row).resolve()) for row in rows.tolist()]
        paths = [file for file in files if file not in known]
        if not paths:
            raise InputError(f"all images of {source} are in {data}; give others")
        labels, split = with_rows(data.labels, data.split, len(paths))
        return replace(data, paths=(*data.paths, *paths), labels=labels, split=split)
    if not isinstance(data, LabelledFeatures) or not isinstance(more, LabelledFeatures):
        raise InputError(
            f"{source} cannot be added to {data}; give image files to image files, and features "
            "to features"
        )
    if data.features.shape[1:] != more.features.shape[1:]:
        raise InputError(
            f"the features of {source} have the shape {more.features.shape[1:]}, but those with "
            f"labels {data.features.shape[1:]}; give features of the same backbone"
        )
    labels, split = with_rows(data.labels, data.split, len(rows))
    features = np.concatenate([data.features, more.features[rows]])
    return replace(data, features=features, labels=labels, split=split, paths=None)


def with_rows(labels: Any, split: Split, n_added: int) -> tuple[Any, Split]:
    """Return labels and split with further rows that train unlabelled."""
    unlabelled = len(labels) + np.arange(n_added)
    filled = labels[np.full(n_added, split.train[0])]  # any label: it is not used
    return np.concatenate([labels, filled]), replace(split, unlabelled=unlabelled)


def holds_features(source: str) -> bool:
    """Whether a path names a features file."""
    return Path(source).suffix.lower() == ".npz"


def image_files(source: str) -> ImageFiles:
    """Open image files; raise if the source has none."""
    images = open_source(source)
    if not isinstance(images, ImageFiles):
        raise InputError(
            f"{source} has no image files; give a folder, a .csv, a .parquet or NAME:FOLDER"
        )
    return images


def absolute_source(source: str | Path) -> str:
    """Return a name of the source that is the same from any working directory.

    >>> absolute_source("voc2007:/data/VOC2007")
    'voc2007:/data/VOC2007'
    """
    name, colon, folder = str(source).partition(":")
    is_benchmark = colon and not Path(source).exists()
    absolute = f"{name}:{absolute_name(folder)}" if is_benchmark else absolute_name(source)
    check_storable(absolute)
    return absolute


def float_features(features: Any) -> Any:
    """Return features as checked float32 arrays; integers are converted."""
    array = np.asarray(features)
    return checked_features(array.astype(np.float32) if array.dtype.kind in "iub" else array)


def is_matrix(source: Any) -> bool:
    """Whether this is a list of rows of numbers."""
    first = source[0] if isinstance(source, list) and source else None
    return isinstance(first, list) and bool(first) and isinstance(first[0], int | float)


def labelled_arrays(features: Any, labels: Any) -> LabelledFeatures:
    """Features and labels in memory; every row trains, and there are no queries."""
    vectors = float_features(features)
    return LabelledFeatures(
        vectors,
        checked_labels(np.asarray(labels), n_rows=len(vectors)),
        Split(train=np.arange(len(vectors))),
    )
