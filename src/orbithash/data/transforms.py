"""From an image file to the pixels that a network is shown."""

from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps, UnidentifiedImageError

from orbithash.errors import UnreadableImageError


def read_view(path: Path, *, warp: int, crop: int) -> UInt8[np.ndarray, "{crop} {crop} 3"]:
    """An image as it is encoded: warped to a square of `warp` pixels, the middle `crop` cut out."""
    image = read_rgb(path, at_least=warp).resize((warp, warp), Image.Resampling.BILINEAR)
    start = (warp - crop) // 2
    return np.asarray(image)[start : start + crop, start : start + crop]


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
