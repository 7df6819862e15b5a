"""Pictures that clients send, and pictures of stored items, small ones kept in memory."""

import io
import stat
import threading
from collections import OrderedDict
from pathlib import Path

from PIL import Image

from orbithash.data.transforms import decode_rgb
from orbithash.errors import InputError
from orbithash.index import Metadata
from orbithash.serve.problems import RefusedError, UnknownItemError

# Formats whose decoders are all inside Pillow: others start programs, or are read by few.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
TYPES = {name: f"image/{name.lower()}" for name in FORMATS} | {"MPO": "image/jpeg"}
SUFFIXES = {"JPEG": ".jpg", "MPO": ".jpg", "TIFF": ".tif"}
THUMBNAIL = 320  # pixels of the long side
MOST_SCANS = (
    20  # of one JPEG, twice the usual: each makes the decoder go over the whole image once more
)


def decode_upload(content: bytes, *, at_least: int, max_pixels: int) -> Image.Image:
    """A picture from a client in RGB, or an error that says what is wrong with it."""
    if not content:
        raise RefusedError("the image is empty; send a file of one of " + ", ".join(FORMATS))
    # Inside a scan these two bytes cannot follow each other.
    if content[:2] == b"\xff\xd8" and content.count(b"\xff\xda") > MOST_SCANS:
        raise RefusedError(f"the image has more than {MOST_SCANS} scans; save it anew")
    try:
        return decode_rgb(
            io.BytesIO(content), at_least=at_least, max_pixels=max_pixels, formats=FORMATS
        )
    except InputError as error:
        raise RefusedError(f"the image cannot be read: {error}") from None


def pixels_of(content: bytes) -> int:
    """What a picture claims to have, which is what decoding it costs."""
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            return image.width * image.height
    except Exception:  # as decoders fail; `decode_upload` says why
        return 0


def format_of(content: bytes) -> str:
    """What a picture that could be decoded is; its suffix when it is kept."""
    with Image.open(io.BytesIO(content), formats=FORMATS) as image:
        name = image.format or ""
    return SUFFIXES.get(name, f".{name.lower()}")


def file_of(metadata: Metadata, images: Path | None) -> Path | None:
    """The file of an item, if it is there; relative paths lie in the folder `images`.

    Paths come from the index alone: no request can name one.
    """
    path = Path(metadata.path)
    if not metadata.path or "\0" in metadata.path:
        return None
    if not path.is_absolute():
        if images is None:
            return None
        root = images.resolve()
        path = (root / path).resolve()
        if not path.is_relative_to(root):
            return None
    try:
        return path if stat.S_ISREG(path.stat().st_mode) else None
    except OSError:
        return None


def name_of(metadata: Metadata) -> str:
    """What an item is called: its path inside of its source, or its file's name.

    >>> name_of(Metadata(path="/data/birds/wren/42.jpg", source="/data/birds"))
    'wren/42.jpg'
    """
    path = Path(metadata.path)
    if not path.is_absolute():
        name = metadata.path
    elif metadata.source and path.is_relative_to(metadata.source):
        name = path.relative_to(metadata.source).as_posix()
    else:
        name = path.name
    # A file's name may hold bytes that no text can.
    return name.encode("utf-8", "replace").decode()


def thumbnail_of(file: Path) -> bytes:
    """A small JPEG of a file of the index."""
    try:
        image = decode_rgb(file, at_least=THUMBNAIL, formats=FORMATS)
    except InputError:
        raise UnknownItemError("there is no picture of this item that can be shown") from None
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    content = io.BytesIO()
    image.save(content, format="JPEG", quality=82)
    return content.getvalue()


def type_of(file: Path) -> str:
    """The media type of a file of the index; one that is no picture is not shown, by any name."""
    try:
        with Image.open(file, formats=FORMATS) as image:
            return TYPES[image.format or ""]
    except Exception:  # as decoders fail, or the file has gone
        raise UnknownItemError("there is no picture of this item that can be shown") from None


MOST_BYTES = 64 << 20  # about four thousand


class Thumbnails:
    """Makes each small picture once, while it is remembered; for use in several threads."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._kept: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._most, self._n_bytes = most_bytes, 0
        self._lock = threading.Lock()

    def of(self, file: Path) -> bytes:
        try:
            key = (str(file), file.stat().st_mtime_ns)
        except OSError:
            raise UnknownItemError("there is no picture of this item any more") from None
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        content = thumbnail_of(file)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = content
                self._n_bytes += len(content)
            while self._n_bytes > self._most:
                self._n_bytes -= len(self._kept.popitem(last=False)[1])
        return content
