"""Features files: vectors with labels and a split, in one `.npz`.

features    float (n, d)                           any finite numbers
labels      int (n,), or bool or 0-1 (n, classes)
train       int                                    row numbers
query, database    int, both or neither            row numbers; the three may overlap
paths       str (n,), optional                     the images they came from
classes     str, optional                          the names of labels 0, 1, …
views       float (v, d), optional                 further views of some of the images
view_of     int (v,), with views                   the row that each is a view of
made_with   str, optional                          free-form provenance
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float16, Float32, Int64, Shaped

from orbithash.data.array_files import listed_names, read_arrays
from orbithash.data.images import check_class_names, check_text
from orbithash.data.splits import Split
from orbithash.errors import InputError
from orbithash.files import whole_file

NEEDED = ("features", "labels", "train")
OPTIONAL = ("query", "database", "paths", "classes", "views", "view_of", "made_with")
TO_ENCODE = ("features", "labels", "paths", "classes", "query", "database")


@dataclass(frozen=True, eq=False)
class Views:
    """Features of further views of images, such as random crops, for training."""

    features: Float32[np.ndarray, "v *shape"] | Float16[np.ndarray, "v *shape"]
    of: Int64[np.ndarray, " v"]  # the row of the image that each view shows


@dataclass(frozen=True, eq=False)
class LabelledFeatures:
    """Vectors in memory with labels and a split."""

    features: Float32[np.ndarray, "n *shape"]  # (n, d), or small images (n, channels, h, w)
    labels: Int64[np.ndarray, " n"] | Bool[np.ndarray, "n classes"]
    split: Split
    paths: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    made_with: str = ""
    views: Views | None = None

    def __len__(self) -> int:
        return len(self.features)

    def __str__(self) -> str:
        return f"{len(self)} rows of features"


@dataclass(frozen=True, eq=False)
class Vectors:
    """Features to encode, with labels, paths, queries and database if the file has them."""

    features: Float32[np.ndarray, "n *shape"]
    labels: Int64[np.ndarray, " n"] | Bool[np.ndarray, "n classes"] | None = None
    paths: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    split: Split | None = None

    def __len__(self) -> int:
        return len(self.features)

    def __str__(self) -> str:
        return f"{len(self)} rows of features"


def read_features(file: Path, *, labelled: bool = True) -> LabelledFeatures:
    """Read and check a features file; raise `InputError` with one line if anything is wrong.

    If it need not be `labelled`, labels may be missing, and are then 0; without `train`, all rows
    train that are no queries.
    """
    arrays = read_arrays(file, (*NEEDED, *OPTIONAL))
    if not labelled and "features" in arrays:
        rows = np.arange(len(arrays["features"]) if arrays["features"].ndim else 0)
        arrays.setdefault("labels", np.zeros_like(rows))
        arrays.setdefault("train", np.setdiff1d(rows, arrays.get("query", rows[:0])))
    for name in NEEDED:
        if name not in arrays:
            raise InputError(
                f"{file} has no array {name!r}, only {listed_names(file)}; "
                "save features, labels and train, and query and database if it is to be scored, "
                "with numpy.savez; only train --labels none needs no labels"
            )
    try:
        features = checked_features(arrays["features"])
        labels = checked_labels(arrays["labels"], n_rows=len(features))
        split = Split(
            **{
                name: checked_rows(name, arrays[name])
                for name in ("train", "query", "database")
                if name in arrays
            }
        )
        split.check(len(features))
        paths = checked_paths(arrays.get("paths"), n_rows=len(features))
        classes = checked_strings("classes", arrays.get("classes"))
        if classes is not None:
            check_class_names(labels, classes, n_images=len(features))
        views = checked_views(arrays, features)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    made_with = str(arrays.get("made_with", ""))
    return LabelledFeatures(features, labels, split, paths, classes, made_with, views)


def read_vectors(file: Path) -> Vectors:
    """Read features to encode; labels and a split may be missing."""
    arrays = read_arrays(file, TO_ENCODE)
    if "features" not in arrays:
        raise InputError(
            f"{file} has no array 'features', only {listed_names(file)}; save it with numpy.savez"
        )
    try:
        features = checked_features(arrays["features"])
        labels = arrays.get("labels")
        return Vectors(
            features,
            None if labels is None else checked_labels(labels, n_rows=len(features)),
            checked_paths(arrays.get("paths"), n_rows=len(features)),
            checked_strings("classes", arrays.get("classes")),
            checked_split(arrays, n_rows=len(features)),
        )
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


def write_features(data: LabelledFeatures, file: Path) -> None:
    """Write the file atomically, replacing an existing one."""
    arrays: dict[str, np.ndarray] = {
        "features": data.features,
        "labels": data.labels,
        "train": data.split.train,
    }
    if data.split.has_queries:
        arrays |= {"query": data.split.query, "database": data.split.database}
    if data.paths is not None:
        arrays["paths"] = np.array(data.paths)
    if data.classes is not None:
        arrays["classes"] = np.array(data.classes)
    if data.views is not None:
        arrays |= {"views": data.views.features, "view_of": data.views.of}
    if data.made_with:
        arrays["made_with"] = np.array(data.made_with)
    with whole_file(file) as opened:
        np.savez(opened, allow_pickle=False, **arrays)


def checked_features(features: Shaped[np.ndarray, "..."]) -> Float32[np.ndarray, "n *shape"]:
    if features.ndim not in (2, 4) or 0 in features.shape or features.dtype.kind != "f":
        raise InputError(
            f"features are {features.dtype} of shape {features.shape}; "
            "they must be floats of shape (rows, dimensions)"
        )
    # Values too large for float32 become infinite and are found below.
    with np.errstate(over="ignore"):
        result = features.astype(np.float32, copy=False)
    finite = np.isfinite(result).reshape(len(result), -1).all(axis=1)
    if not finite.all():
        raise InputError(
            f"{np.count_nonzero(~finite)} rows of features contain NaN or infinity, the first "
            f"is row {int(np.argmin(finite))}; leave such rows out"
        )
    return result


def checked_labels(
    labels: Shaped[np.ndarray, "..."], *, n_rows: int
) -> Int64[np.ndarray, " n"] | Bool[np.ndarray, "n classes"]:
    single = labels.ndim == 1 and labels.dtype.kind in "iu"
    multi = labels.ndim == 2 and labels.dtype.kind in "iub" and np.isin(labels, (0, 1)).all()
    if not single and not multi:
        raise InputError(
            f"labels are {labels.dtype} of shape {labels.shape}; they must be one integer per row, "
            "or 0 and 1 of shape (rows, classes)"
        )
    if len(labels) != n_rows:
        raise InputError(f"got {len(labels)} labels for {n_rows} rows of features; give one each")
    return labels.astype(np.int64) if single else labels.astype(bool)


def checked_rows(name: str, rows: Shaped[np.ndarray, "..."]) -> Int64[np.ndarray, " rows"]:
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise InputError(
            f"{name} is {rows.dtype} of shape {rows.shape}; it must be a list of row numbers "
            "(numpy.flatnonzero makes them from a mask)"
        )
    return rows.astype(np.int64)


def checked_split(arrays: Mapping[str, np.ndarray], *, n_rows: int) -> Split | None:
    """Return queries and database as a split in which every row trains; None without queries."""
    given = [name for name in ("query", "database") if name in arrays]
    if not given:
        return None
    if len(given) < 2:
        raise InputError(f"there is {given[0]} alone; give query and database, or neither")
    query, database = (checked_rows(name, arrays[name]) for name in given)
    for name, rows in (("query", query), ("database", database)):
        if not len(rows):
            raise InputError(f"{name} has no row numbers; give at least one")
    split = Split(train=np.arange(n_rows), query=query, database=database)
    split.check(n_rows)
    return split


def checked_paths(
    strings: Shaped[np.ndarray, "..."] | None, *, n_rows: int
) -> tuple[str, ...] | None:
    paths = checked_strings("paths", strings)
    if paths is not None and len(paths) != n_rows:
        raise InputError(f"got {len(paths)} paths for {n_rows} rows of features")
    return paths


def checked_strings(name: str, strings: Shaped[np.ndarray, "..."] | None) -> tuple[str, ...] | None:
    if strings is None:
        return None
    if strings.ndim != 1 or strings.dtype.kind != "U":
        raise InputError(
            f"{name} is {strings.dtype} of shape {strings.shape}; it must be a list of strings"
        )
    numbers = np.ascontiguousarray(strings.astype(strings.dtype.newbyteorder("="))).view(np.uint32)
    if np.any(numbers > sys.maxunicode):  # of which numpy would make invalid strings
        raise InputError(f"{name} has characters that do not exist, so it is not valid text")
    texts = tuple(strings.tolist())
    check_text(texts, name)
    return texts


def checked_views(
    arrays: dict[str, np.ndarray], features: Float32[np.ndarray, "n *shape"]
) -> Views | None:
    if "views" not in arrays and "view_of" not in arrays:
        return None
    if "views" not in arrays or "view_of" not in arrays:
        raise InputError("one of the arrays views and view_of is missing; save both or neither")
    try:
        views = checked_features(arrays["views"])
    except InputError as error:
        raise InputError(f"in the array views: {error}") from None
    rows = checked_rows("view_of", arrays["view_of"])
    if views.shape != (len(rows), features.shape[1]):
        raise InputError(
            f"views have the shape {views.shape}, but view_of has {len(rows)} rows and features "
            f"have {features.shape[1]} dimensions; give views the shape (rows, dimensions)"
        )
    if rows.min() < 0 or rows.max() >= len(features):
        raise InputError(f"view_of has rows that do not exist; there are {len(features)} rows")
    # Half precision is kept: it halves the memory that training takes.
    half = arrays["views"].dtype == np.float16
    return Views(arrays["views"] if half else views, rows)
