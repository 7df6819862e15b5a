"""Which looks at which images a file of features holds, and in which order they are taken."""

from dataclasses import asdict, dataclass

import numpy as np
from jaxtyping import UInt8

from orbithash.data import ImageFiles
from orbithash.data.augmentation import read_training_view
from orbithash.data.transforms import read_view
from orbithash.networks import View


@dataclass(frozen=True)
class Reading:
    """One look at an image: 0 as it is encoded, 1 the mirror image of that, then random parts."""

    row: int
    number: int


def list_readings(images: ImageFiles, *, n_views: int) -> list[Reading]:
    """All images as they are encoded, then so many further views of those that train."""
    rows = images.split.train.tolist()
    further = [Reading(row, number) for number in range(1, n_views + 1) for row in rows]
    return [Reading(row, 0) for row in range(len(images))] + further


def take(reading: Reading, images: ImageFiles, view: View) -> UInt8[np.ndarray, "side side 3"]:
    """The pixels; which part of the image a random view shows follows from its row and number.

    The mirror image comes first: what a network is shown of a query is nearer to it than to parts.
    """
    file = images.file(reading.row)
    if reading.number <= 1:
        pixels = read_view(file, **asdict(view))
        return pixels[:, ::-1] if reading.number else pixels
    return read_training_view(
        file,
        crop=view.crop,
        rng=np.random.default_rng([reading.row, reading.number]),
        keep_shape=view.keep_shape,
        interpolation=view.interpolation,
    )
