"""SUN397: 108,754 photographs of scenes of 397 categories, of which the 42 largest are used.

Xiao et al., "SUN Database: Large-scale Scene Recognition from Abbey to Zoo", CVPR 2010. Published
layout: ClassName.txt and a tree of category folders, such as a/abbey and
a/apartment_building/outdoor.
"""

from pathlib import Path

import numpy as np

from orbithash.data.benchmarks.published_files import HOMES, read_lines
from orbithash.data.folder import is_image
from orbithash.data.images import ImageFiles
from orbithash.data.splits import Split, stratified_parts
from orbithash.errors import InputError

ADVICE = f"give the folder SUN397 that SUN397.tar.gz from {HOMES['sun397']} unpacks to"


def read_sun397(
    folder: Path,
    *,
    more_than: int = 500,
    queries_per_class: int = 100,
    train_per_class: int = 400,
    seed: int = 0,
) -> ImageFiles:
    """SUN397, scenes of the 42 largest categories: 100 random queries each, the rest is database.

    Only categories with more than 500 images are used. Of each, 100 random images are queries, all
    others are the database, and 400 of these are for training. The draw depends only on the file
    names and the seed, so it is the same on every machine.
    """
    images = {name: images_in(folder, name) for name in category_names(folder)}
    classes = tuple(sorted(name for name, files in images.items() if len(files) > more_than))
    if len(classes) < 2:
        raise InputError(
            f"{len(classes)} of {len(images)} categories in {folder} have more than {more_than} "
            f"images, and at least 2 are needed; {ADVICE}"
        )
    labels = np.repeat(np.arange(len(classes)), [len(images[name]) for name in classes])
    query, train, remaining = stratified_parts(
        labels, [queries_per_class, train_per_class], seed=seed
    )
    return ImageFiles(
        root=folder,
        paths=tuple(path for name in classes for path in images[name]),
        labels=labels,
        classes=classes,
        split=Split(train=train, query=query, database=np.sort(np.concatenate([train, remaining]))),
    )


def category_names(folder: Path) -> list[str]:
    """Return the categories in ClassName.txt without their leading slash."""
    return [line.strip("/") for line in read_lines(folder / "ClassName.txt", advice=ADVICE)]


def images_in(folder: Path, category: str) -> list[str]:
    """Return the images of a category, sorted, without subfolders: they are other categories."""
    category_folder = folder / category
    if not category_folder.is_dir():
        raise InputError(f"the folder {category_folder} is missing; {ADVICE}")
    names = sorted(file.name for file in category_folder.iterdir() if is_image(file))
    if not names:
        raise InputError(f"the folder {category_folder} has no images; {ADVICE}")
    return [f"{category}/{name}" for name in names]
