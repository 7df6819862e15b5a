"""What training sees of an image: each time another part of it, sometimes mirrored."""

import math
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from orbithash.data.transforms import INTERPOLATIONS, read_rgb

SMALLEST_AREA = 0.35  # of the image; less often misses what its label names
WIDEST = 4 / 3  # a part is at most so many times wider than high, or higher than wide
PARTS = {"smallest area": SMALLEST_AREA, "widest": WIDEST}  # all that decides them but chance


def read_training_view(
    image: Any,
    *,
    crop: int,
    rng: np.random.Generator,
    keep_shape: bool = False,
    interpolation: str = "bilinear",
) -> UInt8[np.ndarray, "{crop} {crop} 3"]:
    """A random part of an image, resized to a square of `crop` pixels, every other time mirrored.

    Decoding is that of `read_view`. The part has a third of the image's area or more. A view that
    warps the image to a square sees parts that are warped as much, give or take a third; one that
    keeps the image's shape sees parts that are nearly square. The same state of `rng` gives the
    same pixels, and reading takes the same number of draws from it whether it succeeds or not.
    """
    area = rng.uniform(SMALLEST_AREA, 1)
    ratio = WIDEST ** rng.uniform(-1, 1)
    left, top, mirrored = rng.random(3)
    # So that the part, however narrow, still has `crop` pixels a side where the file has them.
    rgb = read_rgb(image, at_least=math.ceil(crop * math.sqrt(WIDEST / area)))
    box = part_of(rgb.size, area=area, ratio=ratio, left=left, top=top, keep_shape=keep_shape)
    part = rgb.resize((crop, crop), INTERPOLATIONS[interpolation], box=box)
    if mirrored < 0.5:
        part = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(part)


def part_of(
    size: tuple[int, int],
    *,
    area: float,
    ratio: float,
    left: float,
    top: float,
    keep_shape: bool,
) -> tuple[float, float, float, float]:
    """The corners of a part with this share of the area, at most the whole width or height.

    `ratio` is its width to its height, in pixels with `keep_shape`, else as shares of the image's.
    `left` and `top` say, from 0 to 1, where it lies in the room that it leaves.

    >>> part_of((200, 100), area=0.25, ratio=1.0, left=0.0, top=1.0, keep_shape=False)
    (0.0, 50.0, 100.0, 100.0)
    """
    width, height = size
    if keep_shape:
        ratio *= height / width
    wide = width * min(1.0, math.sqrt(area * ratio))
    high = height * min(1.0, math.sqrt(area / ratio))
    x, y = left * (width - wide), top * (height - high)
    return x, y, min(x + wide, width), min(y + high, height)
