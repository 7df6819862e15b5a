"""The split of a run on images, kept in its folder, so that its training images are known."""

import logging
from functools import cache
from pathlib import Path

from orbithash.data import ImageFiles, image_table, write_image_table
from orbithash.encoders.runs.run_folder import SPLIT
from orbithash.errors import InputError

logger = logging.getLogger(__name__)


def write_split(images: ImageFiles, run: Path) -> None:
    """Write the images with their split into a run's folder.

    It is left out if the classes have names that a table cannot hold.
    """
    try:
        write_image_table(images, run / SPLIT)
    except InputError as error:
        logger.warning("the split is not kept: %s", error)


def trained_queries(run: Path, images: ImageFiles) -> list[str]:
    """Return the paths of the queries that trained the run; images are compared by location."""
    if not (run / SPLIT).exists():
        return []
    run_images = image_table(run / SPLIT)

    @cache  # resolving reads every part of a path from disk
    def real_folder(folder: Path) -> Path:
        return folder.resolve()

    def location(file: Path) -> Path:
        return real_folder(file.parent) / file.name

    trained = {location(run_images.file(row)) for row in run_images.split.train.tolist()}
    queries = images.split.query.tolist()
    return [images.paths[row] for row in queries if location(images.file(row)) in trained]
