"""Reading images: decoding, resizing and cropping to a network's input."""

import io
import re
import stat
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped, UInt8
from PIL import ExifTags, Image, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile, jpeg_factory

from orbithash.errors import InputError, UnreadableImageError

INTERPOLATIONS = {
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}

MAX_PIXELS = 80_000_000  # about 320 MB when decoded; a small file can claim far more
# Phones take photographs of 108 and 200 million pixels. They are decoded row by row at a smaller
# size; a progressive JPEG is in memory as a whole first.
MAX_JPEG_PIXELS = 200_000_000
BAND_PIXELS = 1 << 22
# How an image is turned upright, by its EXIF orientation.
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
JPEG_START = b"\xff\xd8\xff"
HEIF = "HEIF"  # Pillow's name of the format
HEIF_ADVICE = "to read it, run: pip install 'orbithash[heif]'"
HEIF_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}


def read_view(
    image: Any,
    *,
    resize: int,
    crop: int,
    keep_shape: bool = False,
    interpolation: str = "bilinear",
) -> UInt8[np.ndarray, "{crop} {crop} 3"]:
    """Read an image, given as `read_rgb` takes it, as it is encoded; see `view_of`."""
    rgb = read_rgb(image, at_least=resize)
    return view_of(
        rgb, resize=resize, crop=crop, keep_shape=keep_shape, interpolation=interpolation
    )


def view_of(
    image: Image.Image,
    *,
    resize: int,
    crop: int,
    keep_shape: bool = False,
    interpolation: str = "bilinear",
) -> UInt8[np.ndarray, "{crop} {crop} 3"]:
    """Resize an RGB image and return its central square of `crop` pixels.

    The image is warped to a square of `resize` pixels. With `keep_shape` its aspect ratio is kept,
    and its short side gets `resize` pixels.
    """
    if crop > resize:
        raise InputError(
            f"cannot crop {crop} pixels from an image resized to {resize}; "
            "resize to at least as many"
        )
    width, height = scaled_size(image.size, resize) if keep_shape else (resize, resize)
    left, top = (width - crop) // 2, (height - crop) // 2
    # Only the crop is resized, which saves a fifth of the time.
    x_scale, y_scale = image.width / width, image.height / height
    box = (left * x_scale, top * y_scale, (left + crop) * x_scale, (top + crop) * y_scale)
    return np.asarray(image.resize((crop, crop), INTERPOLATIONS[interpolation], box=box))


def scaled_size(size: tuple[int, int], short_side: int) -> tuple[int, int]:
    """Return width and height scaled so that the shorter one is `short_side`.

    >>> scaled_size((640, 480), 240)
    (320, 240)
    """
    width, height = size
    short = min(width, height)
    return width * short_side // short, height * short_side // short


def read_rgb(image: Any, *, at_least: int) -> Image.Image:
    """Return a whole image in RGB: of a path, a PIL image, or an array of uint8 pixels.

    Arrays are grey, RGB or RGBA, with the channels last. Files are decoded by `decode_rgb`.
    """
    if isinstance(image, str | Path):
        return decode_rgb(Path(image), at_least=at_least)
    if isinstance(image, np.ndarray):
        image = image_from_array(image)
    if not isinstance(image, Image.Image):
        raise InputError(f"got a {type(image).__name__}; give a path, a PIL image or an array")
    try:
        return to_rgb(upright(image))
    except (ValueError, OSError) as error:  # PIL may read the file only now
        raise InputError(f"got an image that cannot be encoded: {error}") from None


def image_from_array(array: Shaped[np.ndarray, "..."]) -> Image.Image:
    channels = 1 if array.ndim == 2 else array.shape[-1]
    if array.dtype != np.uint8 or array.ndim not in (2, 3) or channels not in (1, 3, 4):
        raise InputError(
            f"got an array of {array.dtype} and shape {array.shape}; "
            "give uint8 of shape (height, width, 3)"
        )
    return Image.fromarray(array.reshape(array.shape[:2]) if channels == 1 else array)


def decode_rgb(
    file: Path | io.BytesIO,
    *,
    at_least: int,
    max_pixels: int = MAX_PIXELS,
    max_jpeg_pixels: int = MAX_JPEG_PIXELS,
    formats: tuple[str, ...] | None = None,
) -> Image.Image:
    """Decode an image to RGB, rotated by its EXIF orientation, on a white background.

    JPEGs may be scaled down by 2, 4 or 8, which saves most of the decoding time, but never below
    `at_least` pixels per side. An image of more than `max_pixels` is refused, unless it is a
    baseline JPEG of at most `max_jpeg_pixels` that can be scaled down to `max_pixels`. `formats`
    are Pillow's names of the accepted formats, all by default.
    """
    try:
        with open_image(file, formats=formats) as image:
            whole = image.size
            streamed = isinstance(image, JpegImageFile) and "progressive" not in image.info
            check_pixels(whole, whole, limit=max_jpeg_pixels if streamed else max_pixels)
            image.draft(None, (at_least, at_least))
            check_pixels(image.size, whole, limit=max_pixels)
            image.load()
            turn = turn_upright(image)
            rgb = to_rgb(image)
        del image  # of a large one, two copies in memory are enough
        return rgb if turn is None else rgb.transpose(turn)
    except Exception as error:  # decoders raise all kinds of errors on damaged files
        path = file if isinstance(file, Path) else Path("image")
        raise UnreadableImageError(path, *diagnosis(error)) from error


def open_image(file: Path | io.BytesIO, *, formats: tuple[str, ...] | None = None) -> Image.Image:
    """Open an image as `Image.open` does; also JPEGs of any size, and HEIC if it is installed."""
    if isinstance(file, Path) and not stat.S_ISREG(mode := file.stat().st_mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe, socket or device"  # which may wait
        raise InputError(f"{kind}; give an image file")
    with file.open("rb") if isinstance(file, Path) else nullcontext(file) as opened:
        start = opened.read(12)
        opened.seek(0)
    if not start:
        raise InputError("the file is empty; replace it with an intact copy")
    if start.startswith(JPEG_START) and (formats is None or "JPEG" in formats):
        return jpeg_factory(file)  # type: ignore[arg-type]  # paths are accepted
    if start[4:8] == b"ftyp" and start[8:] in HEIF_BRANDS and (formats is None or HEIF in formats):
        register_heif()
    return Image.open(file, formats=formats)


def register_heif() -> None:
    """Make Pillow read HEIC; this is called when the first such file is opened."""
    if HEIF in Image.OPEN:
        return
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        raise InputError(f"a HEIC image; {HEIF_ADVICE}") from None
    register_heif_opener()


def check_pixels(size: tuple[int, int], whole: tuple[int, int], *, limit: int) -> None:
    """Raise if an image of this size, decoded from a whole one, has too many pixels."""
    if size[0] * size[1] > limit:
        raise InputError(
            f"{whole[0]} × {whole[1]} pixels are more than {limit:,}; save a smaller copy"
        )


def upright(image: Image.Image) -> Image.Image:
    """Return the image rotated by its EXIF orientation; the argument is not changed."""
    turn = turn_upright(image)
    return image if turn is None else image.transpose(turn)


def turn_upright(image: Image.Image) -> Image.Transpose | None:
    """Return how the EXIF orientation says that an image is to be turned."""
    try:
        return TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # an image with damaged EXIF data can still be used
        return None


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert an image of any mode to RGB: 16 bits are scaled to 8, transparency becomes white.

    Large images are converted in bands, because intermediate ones have up to 8 bytes per pixel.
    """
    if image.mode == "F":
        raise InputError(
            "its pixels are floating-point numbers with an unknown range; save it with 8 or 16 bits"
        )
    width, height = image.size
    is_plain = image.mode == "RGB" and not image.has_transparency_data
    if is_plain or width * height <= BAND_PIXELS:
        return band_to_rgb(image)
    rgb = Image.new("RGB", image.size)
    n_rows = max(1, BAND_PIXELS // width)
    for top in range(0, height, n_rows):
        band = (0, top, width, min(top + n_rows, height))
        rgb.paste(band_to_rgb(image.crop(band)), band)
    return rgb


def band_to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        # 16-bit grey: Pillow would clip it at 255 instead of scaling it.
        grey = np.asarray(image).clip(0, 65535) // 256
        image = Image.fromarray(grey.astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    return image.convert("RGB")


FILE_ADVICE: dict[type[OSError], str] = {
    FileNotFoundError: "check the path",
    NotADirectoryError: "check the path",
    PermissionError: "check its permissions",
}


def diagnosis(error: Exception) -> tuple[str, str]:
    """Return why an image cannot be read, in one line without its path, and what to do."""
    match error:
        case InputError():
            reason, _, advice = str(error).partition("; ")
            return reason, advice
        case UnidentifiedImageError():
            return "not an image of a known format", "give a JPEG or PNG"
        case Image.DecompressionBombError() | Image.DecompressionBombWarning():
            count = int(re.findall(r"\d+", str(error))[0])  # "Image size (108000000 pixels) …"
            return f"{count:,} pixels are more than {MAX_PIXELS:,}", "save a smaller copy"
        case MemoryError():
            return "not enough memory", "save a smaller copy"
        case OSError() if error.strerror:
            return error.strerror, FILE_ADVICE.get(type(error), "check the path and the disk")
    text = " ".join(str(error).split()) or type(error).__name__
    # Pillow's decoders say what is wrong in an OSError; other errors are accidents in them.
    reason = text if isinstance(error, OSError) else f"its content is damaged ({text})"
    return reason, "replace it with an intact copy"
