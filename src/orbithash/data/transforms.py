"""From an image file to the pixels that a network is shown."""

from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps, UnidentifiedImageError

from orbithash.errors import UnreadableImageError

INTERPOLATIONS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def read_view(
    path: Path,
    *,
    resize: int,
    crop: int,
    keep_shape: bool = False,
    interpolation: str = "bilinear",
) -> UInt8[np.ndarray, "{crop} {crop} 3"]:
    """An image as it is encoded: resized, and the middle `crop` pixels cut out.

    It is warped to a square of `resize` pixels, or with `keep_shape` its short side becomes so
    long.
    """
    image = read_rgb(path, at_least=resize)
    return fixed_view(
        image, resize=resize, crop=crop, keep_shape=keep_shape, interpolation=interpolation
    )


def fixed_view(
    image: Image.Image,
    *,
    resize: int,
    crop: int,
    keep_shape: bool = False,
    interpolation: str = "bilinear",
) -> UInt8[np.ndarray, "{crop} {crop} 3"]:
    """What `read_view` gives of an RGB image that is in memory already."""
    size = shrunk(image.size, resize) if keep_shape else (resize, resize)
    image = image.resize(size, INTERPOLATIONS[interpolation])
    left, top = (size[0] - crop) // 2, (size[1] - crop) // 2
    return np.asarray(image)[top : top + crop, left : left + crop]


def shrunk(size: tuple[int, int], short_side: int) -> tuple[int, int]:
    """Width and height in the same proportion with the short side as long as asked for.

    >>> shrunk((640, 480), 240)
    (320, 240)
    """
    width, height = size
    short = min(width, height)
    return width * short_side // short, height * short_side // short


def read_rgb(path: Path, *, at_least: int) -> Image.Image:
    """A whole image in RGB, turned upright as its EXIF data say; transparent parts are white.

    JPEGs may come back scaled down by 2, 4 or 8, which saves most of the work of decoding, but
    never below `at_least` pixels a side.
    """
    try:
        with Image.open(path) as image:
            image.draft(None, (at_least, at_least))
            return to_rgb(ImageOps.exif_transpose(image))
    except Exception as error:  # a damaged file makes decoders fail in every way there is
        raise UnreadableImageError(path, describe(error)) from error


def to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        # Grey of 16 bits, which Pillow would cut off at 255 instead of scaling it.
        grey = np.asarray(image).clip(0, 65535) // 256
        image = Image.fromarray(grey.astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    return image.convert("RGB")


def describe(error: Exception) -> str:
    """What is wrong with an image, in one line and without its path."""
    if isinstance(error, UnidentifiedImageError):
        return "not an image of a known format"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()) or type(error).__name__
