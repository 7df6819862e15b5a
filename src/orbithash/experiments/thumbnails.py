"""Small pictures of a source's images, where the files are at hand."""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from PIL import Image, ImageOps

from orbithash.data import ImageFiles, LabelledFeatures
from orbithash.data.transforms import read_rgb
from orbithash.errors import UnreadableImageError
from orbithash.experiments.page import data_uri
from orbithash.experiments.sources import Source

SIDE = 72  # pixels; a report holds some hundreds, of about 2 kB each


def thumbnails_of(
    source: Source, data: LabelledFeatures | ImageFiles, rows: Iterable[int]
) -> dict[int, str]:
    """Data URIs by row; rows whose image is not found or cannot be read have none."""
    beside = source.file.parent if source.file else None
    places = [place for place in (source.images, beside, Path()) if place is not None]
    result = {}
    for row in sorted(rows):
        image = thumbnail(find_image(data, row, places))
        if image is not None:
            content = io.BytesIO()
            image.save(content, format="JPEG", quality=60)
            result[row] = data_uri(content.getvalue(), "image/jpeg")
    return result


def thumbnail(file: Path | None) -> Image.Image | None:
    """The middle of an image, small; None if it is not there or cannot be read."""
    if file is None:
        return None
    try:
        return ImageOps.fit(read_rgb(file, at_least=SIDE), (SIDE, SIDE))
    except UnreadableImageError:
        return None


def find_image(
    data: LabelledFeatures | ImageFiles, row: int, places: Sequence[Path] = ()
) -> Path | None:
    """The file of a row; the paths of features are looked for in these places."""
    if isinstance(data, ImageFiles):
        return data.file(row)
    if data.paths is None:
        return None
    candidates = (place / data.paths[row] for place in places)
    return next((file for file in candidates if file.is_file()), None)
