"""PASCAL VOC 2007: 9,963 photographs with objects of 20 classes, often of several.

Everingham et al., "The PASCAL Visual Object Classes Challenge 2007". The folder VOC2007 of the
devkit, with the training and the test archive unpacked into the same folder: JPEGImages/,
Annotations/ and ImageSets/Main/.
"""

import logging
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from jaxtyping import Bool, Int64

from orbithash.data.benchmarks.published_files import HOMES, read_lines, require_file, require_files
from orbithash.data.images import ImageFiles
from orbithash.data.splits import Split
from orbithash.errors import InputError

logger = logging.getLogger(__name__)

ADVICE = (
    "unpack VOCtrainval_06-Nov-2007.tar and VOCtest_06-Nov-2007.tar from "
    f"{HOMES['voc2007']} into one folder and give its subfolder VOCdevkit/VOC2007"
)

# fmt: off
CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair",
    "cow", "diningtable", "dog", "horse", "motorbike", "person", "pottedplant",
    "sheep", "sofa", "train", "tvmonitor",
)
# fmt: on


def read_voc2007(folder: Path) -> ImageFiles:
    """PASCAL VOC 2007, objects of 20 classes: `trainval` is the database, `train` for training.

    The images of `test` are the queries. The labels of an image are the classes of its objects,
    without objects that are marked difficult: the official evaluation ignores these, and the lists
    in ImageSets/Main give them 0 instead of 1. An image with difficult objects only has no label
    and is related to no other.
    """
    folder = devkit(folder)
    lists = {name: image_ids(folder, name) for name in ("train", "trainval", "test")}
    ids = sorted(set().union(*lists.values()))
    paths = tuple(f"JPEGImages/{image}.jpg" for image in ids)
    require_files(folder, paths, what="images", advice=ADVICE)
    annotations = [f"Annotations/{image}.xml" for image in ids]
    require_files(folder, annotations, what="annotations", advice=ADVICE)
    labels = np.stack([labels_of(folder / file) for file in annotations])
    if n_unlabelled := int((~labels.any(axis=1)).sum()):
        logger.warning(
            "%s: %d images have only difficult objects, and no label", folder, n_unlabelled
        )
    row_of = {image: row for row, image in enumerate(ids)}

    def rows(name: str) -> Int64[np.ndarray, " rows"]:
        return np.array(sorted({row_of[image] for image in lists[name]}), dtype=np.int64)

    return ImageFiles(
        root=folder,
        paths=paths,
        labels=labels,
        classes=CLASSES,
        split=Split(train=rows("train"), query=rows("test"), database=rows("trainval")),
    )


def devkit(folder: Path) -> Path:
    """Return the folder VOC2007 itself if one of its parents is given."""
    for inner in ("VOC2007", "VOCdevkit/VOC2007"):
        if (folder / inner).is_dir():
            return folder / inner
    return folder


def image_ids(folder: Path, name: str) -> list[str]:
    """Return all image ids of a list; in lists of one class, 1, 0 or -1 follows each id."""
    lines = read_lines(folder / "ImageSets" / "Main" / f"{name}.txt", advice=ADVICE)
    return [line.split()[0] for line in lines]


def labels_of(file: Path) -> Bool[np.ndarray, " classes"]:
    """Return the classes of an annotation's objects, as a row of a 0-1 table."""
    require_file(file, advice=ADVICE)
    try:
        tree = ElementTree.parse(file)
    except (ElementTree.ParseError, OSError) as error:
        raise InputError(f"cannot read {file}: {error}; download the file again") from None
    labels = np.zeros(len(CLASSES), dtype=bool)
    for element in tree.iterfind("object"):
        name = (element.findtext("name") or "").strip()
        if name not in CLASSES:
            raise InputError(
                f"{file} has an object {name!r}, which is none of the {len(CLASSES)} classes of "
                "VOC2007; download the file again"
            )
        if (element.findtext("difficult") or "0").strip() != "1":
            labels[CLASSES.index(name)] = True
    return labels
