"""Training views: random crops of an image, half of them mirrored."""

import math
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from orbithash.data.transforms import INTERPOLATIONS, read_rgb

MIN_AREA = 0.35  # of the image; smaller crops often miss the labelled object
MAX_ASPECT_RATIO = 4 / 3  # of a crop: width to height, or height to width
# Everything that determines crops except the random state; stored in fingerprints of features.
CROP_SETTINGS = {"smallest area": MIN_AREA, "widest": MAX_ASPECT_RATIO}


def read_training_view(
    image: Any,
    *,
    crop: int,
    rng: np.random.Generator,
    keep_shape: bool = False,
    interpolation: str = "bilinear",
) -> UInt8[np.ndarray, "{crop} {crop} 3"]:
    """Read a random crop of an image, resized to `crop` × `crop` pixels, mirrored half of the time.

    Images are decoded as by `read_view`. A crop has at least a third of the image's area. Its
    aspect ratio is within a factor of 4/3 of that of the image, which is warped to a square; with
    `keep_shape` it is within 4/3 of a square. The same state of `rng` gives the same pixels, and
    the same number of values is drawn from it even if reading fails.
    """
    area = rng.uniform(MIN_AREA, 1)
    ratio = MAX_ASPECT_RATIO ** rng.uniform(-1, 1)
    left, top, mirrored = rng.random(3)
    # A narrow crop must still have `crop` pixels per side, if the file has them.
    rgb = read_rgb(image, at_least=math.ceil(crop * math.sqrt(MAX_ASPECT_RATIO / area)))
    box = crop_box(rgb.size, area=area, ratio=ratio, left=left, top=top, keep_shape=keep_shape)
    part = rgb.resize((crop, crop), INTERPOLATIONS[interpolation], box=box)
    if mirrored < 0.5:
        part = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(part)


def crop_box(
    size: tuple[int, int],
    *,
    area: float,
    ratio: float,
    left: float,
    top: float,
    keep_shape: bool,
) -> tuple[float, float, float, float]:
    """Return the corners of a crop with this share of the area, clipped to the image.

    `ratio` is its width to its height: in pixels with `keep_shape`, otherwise relative to the
    image's. `left` and `top` in [0, 1] place it between the image's edges.

    >>> crop_box((200, 100), area=0.25, ratio=1.0, left=0.0, top=1.0, keep_shape=False)
    (0.0, 50.0, 100.0, 100.0)
    """
    width, height = size
    if keep_shape:
        ratio *= height / width
    crop_width = width * min(1.0, math.sqrt(area * ratio))
    crop_height = height * min(1.0, math.sqrt(area / ratio))
    x, y = left * (width - crop_width), top * (height - crop_height)
    return x, y, min(x + crop_width, width), min(y + crop_height, height)
