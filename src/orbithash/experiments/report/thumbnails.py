"""Small pictures of a source's images."""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from PIL import Image, ImageOps

from orbithash.data import ImageFiles
from orbithash.data.transforms import read_rgb
from orbithash.errors import UnreadableImageError
from orbithash.experiments.report.html import data_uri
from orbithash.experiments.tables.sources import SourceData, TableSource

SIDE = 72  # pixels; a report holds some hundreds of thumbnails, of about 2 kB each


def thumbnail(file: Path | None) -> Image.Image | None:
    """Shrink the centre of an image; None if it is missing or cannot be read."""
    if file is None:
        return None
    try:
        return ImageOps.fit(read_rgb(file, at_least=SIDE), (SIDE, SIDE))
    except UnreadableImageError:
        return None


def find_image(data: SourceData, row: int, folders: Sequence[Path] = ()) -> Path | None:
    """Return the file of a row; paths in a features file are relative to one of the folders."""
    if isinstance(data, ImageFiles):
        return data.file(row)
    if data.paths is None:
        return None
    candidates = (folder / data.paths[row] for folder in folders)
    return next((file for file in candidates if file.is_file()), None)


def thumbnail_uris(source: TableSource, data: SourceData, rows: Iterable[int]) -> dict[int, str]:
    """Return thumbnails as data URIs by row, without those of missing or unreadable images."""
    beside_features = source.file.parent if source.file else None
    folders = [folder for folder in (source.images, beside_features, Path()) if folder is not None]
    uris = {}
    for row in sorted(rows):
        image = thumbnail(find_image(data, row, folders))
        if image is not None:
            content = io.BytesIO()
            image.save(content, format="JPEG", quality=60)
            uris[row] = data_uri(content.getvalue(), "image/jpeg")
    return uris
