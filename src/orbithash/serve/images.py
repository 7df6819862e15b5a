"""Uploaded images, and image files of stored items."""

import hashlib
import io
import stat
import threading
from collections import OrderedDict
from pathlib import Path
from typing import TypeGuard

from PIL import Image

from orbithash.data.transforms import HEIF, decode_rgb, open_image
from orbithash.errors import InputError, StorageError, UnreadableImageError
from orbithash.files import whole_file
from orbithash.index import Metadata
from orbithash.serve.error_responses import NotFoundError, UnprocessableError

# Only formats that Pillow decodes itself: others start external programs or are rarely tested.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
STORED_FORMATS = (*FORMATS, HEIF)  # of files that the owner of the index has indexed
MEDIA_TYPES = {name: f"image/{name.lower()}" for name in STORED_FORMATS} | {"MPO": "image/jpeg"}
SUFFIXES = {"JPEG": ".jpg", "MPO": ".jpg", "TIFF": ".tif"}
# TIFF tags, and values of the first.
COMPRESSION, STRIPS, STRIP_LENGTHS, TILES, TILE_LENGTHS = 259, 273, 279, 324, 325
OLD_JPEG, JPEG_STRIPS = 6, 7
THUMBNAIL_PIXELS = 320  # of the longer side
# Twice the usual number in a progressive JPEG; the decoder passes over the image once per scan.
MAX_SCANS = 20
SCAN = b"\xff\xda"  # begins a scan, and cannot occur inside one
CACHE_BYTES = 64 << 20  # about 4,000 thumbnails


def decode_upload(content: bytes, *, at_least: int, max_pixels: int) -> Image.Image:
    """Decode an uploaded file to RGB; `UnprocessableError` says what is wrong with it."""
    if not content:
        raise UnprocessableError("the image is empty; send a file of one of " + ", ".join(FORMATS))
    if max(content.count(SCAN, start, stop) for start, stop in jpeg_parts(content)) > MAX_SCANS:
        raise UnprocessableError(
            f"the image has more than {MAX_SCANS} scans; save it again as a baseline JPEG"
        )
    try:
        return decode_rgb(
            io.BytesIO(content),
            at_least=at_least,
            max_pixels=max_pixels,
            max_jpeg_pixels=max_pixels,
            formats=FORMATS,
        )
    except UnreadableImageError as error:
        raise UnprocessableError(
            f"the image cannot be read: {error.reason}; {error.advice}"
        ) from None


def jpeg_parts(content: bytes) -> list[tuple[int, int]]:
    """Return the bounds of each JPEG in a file: the file itself, or strips or tiles of a TIFF."""
    whole = [(0, len(content))]
    try:
        with Image.open(io.BytesIO(content), formats=["TIFF"]) as image:
            tags = dict(image.tag_v2)  # type: ignore[attr-defined]
    except Exception:  # not a TIFF, or `decode_upload` reports it
        return whole if content.startswith(b"\xff\xd8") else [(0, 0)]
    if tags.get(COMPRESSION) not in (OLD_JPEG, JPEG_STRIPS):
        return [(0, 0)]
    is_tiled = TILES in tags
    offsets = tags.get(TILES if is_tiled else STRIPS)
    lengths = tags.get(TILE_LENGTHS if is_tiled else STRIP_LENGTHS)
    if not are_counts(offsets) or not are_counts(lengths) or len(offsets) != len(lengths):
        return whole  # the decoder guesses the bounds then
    return [(start, start + length) for start, length in zip(offsets, lengths, strict=True)]


def are_counts(values: object) -> TypeGuard[tuple[int, ...]]:
    """Return whether a TIFF tag holds positive integers; a file may give it any type."""
    if not isinstance(values, tuple) or not values:
        return False
    return all(isinstance(value, int) and value > 0 for value in values)


def declared_pixels(content: bytes) -> int:
    """Return the number of pixels in the header, which determines the cost of decoding."""
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            return image.width * image.height
    except Exception:  # decoders raise anything; `decode_upload` reports it
        return 0


def store_upload(content: bytes, folder: Path) -> str:
    """Write a decodable image under its hash and return the path; duplicates share a file."""
    file = folder.absolute() / (hashlib.sha256(content).hexdigest()[:32] + suffix_for(content))
    if not file.exists():
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(file) as opened:
                opened.write(content)
        except (OSError, InputError) as error:
            raise StorageError(f"cannot store an image: {error}") from error
    return str(file)


def suffix_for(content: bytes) -> str:
    with Image.open(io.BytesIO(content), formats=FORMATS) as image:
        name = image.format or ""
    return SUFFIXES.get(name, f".{name.lower()}")


def image_file(metadata: Metadata, root: Path | None) -> Path | None:
    """Return the existing file of an item, or None; relative paths are resolved below `root`.

    Paths come from the index only: no request can name one.
    """
    path = Path(metadata.path)
    if not metadata.path or "\0" in metadata.path:
        return None
    if not path.is_absolute():
        if root is None:
            return None
        root = root.resolve()
        path = (root / path).resolve()
        if not path.is_relative_to(root):
            return None
    try:
        return path if stat.S_ISREG(path.stat().st_mode) else None
    except OSError:
        return None


def display_name(metadata: Metadata) -> str:
    """Return the path of an item relative to its source, or else its file name.

    >>> display_name(Metadata(path="/data/birds/wren/42.jpg", source="/data/birds"))
    'wren/42.jpg'
    """
    path = Path(metadata.path)
    if not path.is_absolute():
        name = metadata.path
    elif metadata.source and path.is_relative_to(metadata.source):
        name = path.relative_to(metadata.source).as_posix()
    else:
        name = path.name
    # A file name may hold bytes that are not valid UTF-8.
    return name.encode("utf-8", "replace").decode()


def image_media_type(file: Path) -> str:
    """Return the media type by content; any file that is not an image is a `NotFoundError`."""
    try:
        with open_image(file, formats=STORED_FORMATS) as image:
            return MEDIA_TYPES[image.format or ""]
    except Exception:  # decoders raise anything, and the file may be gone
        raise NotFoundError("this item has no readable image") from None


class ThumbnailCache:
    """Thumbnails of image files, least recently used ones dropped first; thread-safe."""

    def __init__(self, max_bytes: int = CACHE_BYTES) -> None:
        self._entries: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._max_bytes, self._n_bytes = max_bytes, 0
        self._lock = threading.Lock()

    def get(self, file: Path) -> bytes:
        """Return a JPEG of at most `THUMBNAIL_PIXELS` a side."""
        try:
            key = (str(file), file.stat().st_mtime_ns)
        except OSError:
            raise NotFoundError("the image file of this item no longer exists") from None
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key]
        content = make_thumbnail(file)
        with self._lock:
            if key not in self._entries:
                self._entries[key] = content
                self._n_bytes += len(content)
            while self._n_bytes > self._max_bytes:
                self._n_bytes -= len(self._entries.popitem(last=False)[1])
        return content


def make_thumbnail(file: Path) -> bytes:
    try:
        image = decode_rgb(file, at_least=THUMBNAIL_PIXELS, formats=STORED_FORMATS)
    except InputError:
        raise NotFoundError("this item has no readable image") from None
    image.thumbnail((THUMBNAIL_PIXELS, THUMBNAIL_PIXELS))
    content = io.BytesIO()
    image.save(content, format="JPEG", quality=82)
    return content.getvalue()
