"""Training views: random crops of photographs, half of them mirrored; warped copies of drawings."""

import math
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8
from PIL import Image

from orbithash.data.transforms import INTERPOLATIONS, read_rgb

MIN_AREA = 0.35  # of the image; smaller crops often miss the labelled object
MAX_ASPECT_RATIO = 4 / 3  # of a crop: width to height, or height to width
# Everything that determines crops except the random state; stored in fingerprints of features.
CROP_SETTINGS = {"smallest area": MIN_AREA, "widest": MAX_ASPECT_RATIO}

# The most that `warped` changes an image.
ROTATION = math.radians(10)
LOG_SCALE = 0.1  # of each axis
SHEAR = 0.1
SHIFT = 0.075  # of the side


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


def warped(
    images: Float32[np.ndarray, "n height width"], rng: np.random.Generator
) -> Float32[np.ndarray, "n height width"]:
    """Return each image a little rotated, scaled, sheared and shifted at random.

    For drawings such as handwritten digits, which a crop or a mirror would turn into others. Pixels
    from outside the image are 0.
    """
    from scipy.ndimage import map_coordinates  # slow to import

    n, height, width = images.shape
    angle = rng.uniform(-ROTATION, ROTATION, n)
    cosine, sine = np.cos(angle), np.sin(angle)
    rotation = np.stack([cosine, -sine, sine, cosine], axis=1).reshape(n, 2, 2)
    stretch = np.exp(rng.uniform(-LOG_SCALE, LOG_SCALE, (n, 2)))[:, :, None] * np.eye(2)
    stretch[:, 1, 0] = rng.uniform(-SHEAR, SHEAR, n) * stretch[:, 0, 0]
    shift = rng.uniform(-SHIFT, SHIFT, (n, 2)) * (height, width)
    # From each pixel of the result to its place in the image, both relative to the centre.
    centre = np.array([height - 1, width - 1]) / 2
    pixels = np.indices((height, width)).reshape(2, -1) - centre[:, None]
    places = rotation @ stretch @ pixels + (centre + shift)[:, :, None]
    numbers = np.broadcast_to(np.arange(n)[:, None], (n, height * width))
    coordinates = np.stack([numbers, places[:, 0], places[:, 1]])
    sampled: np.ndarray = map_coordinates(images, coordinates, order=1)
    return sampled.reshape(images.shape)
