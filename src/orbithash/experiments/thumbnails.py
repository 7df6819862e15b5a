"""Small pictures of a source's images, where the files are at hand."""

import io
from collections.abc import Iterable
from pathlib import Path

from PIL import ImageOps

from orbithash.data import LabelledFeatures
from orbithash.data.transforms import read_rgb
from orbithash.errors import UnreadableImageError
from orbithash.experiments.page import data_uri
from orbithash.experiments.sources import Source

SIDE = 72  # pixels; a report holds some hundreds, of about 2 kB each


def thumbnails_of(source: Source, data: LabelledFeatures, rows: Iterable[int]) -> dict[int, str]:
    """Data URIs by row; rows whose image is not found or cannot be read have none."""
    result = {}
    for row in sorted(rows):
        file = find_image(source, data, row)
        if file is None:
            continue
        try:
            image = read_rgb(file, at_least=SIDE)
        except UnreadableImageError:
            continue
        content = io.BytesIO()
        ImageOps.fit(image, (SIDE, SIDE)).save(content, format="JPEG", quality=60)
        result[row] = data_uri(content.getvalue(), "image/jpeg")
    return result


def find_image(source: Source, data: LabelledFeatures, row: int) -> Path | None:
    """The file of a row: its path is relative to where the images were read, or as it stands."""
    if data.paths is None:
        return None
    places = (source.images, source.file.parent, Path())
    candidates = (place / data.paths[row] for place in places if place is not None)
    return next((file for file in candidates if file.is_file()), None)
