"""The split of a run on images, kept beside it, so that it is known which images have trained."""

import logging
from functools import cache
from pathlib import Path
from orbithash.data import ImageFiles, image_table, write_image_table
from orbithash.encoders.runs.run_folder import SPLIT
from orbithash.errors import InputError


logger = logging.getLogger(__name__)


def keep_split(images: ImageFiles, run: Path) -> None:
    """Write the images with their split into the folder of a run.

    A run whose classes have names that no table can hold goes without.
    """
    try:
        write_image_table(images, run / SPLIT)
    except InputError as error:
        logger.warning("the split is not kept: %s", error)


def trained_queries(run: Path, images: ImageFiles) -> list[str]:
    """The paths of the queries that trained the run; images are told apart by where they lie."""
    if not (run / SPLIT).exists():
        return []
    theirs = image_table(run / SPLIT)

    @cache  # the disk is asked for every part of a path
    def real_folder(folder: Path) -> Path:
        return folder.resolve()

    def place(file: Path) -> Path:
        return real_folder(file.parent) / file.name

    trained = {place(theirs.file(row)) for row in theirs.split.train.tolist()}
    queries = images.split.query.tolist()
    return [images.paths[row] for row in queries if place(images.file(row)) in trained]
