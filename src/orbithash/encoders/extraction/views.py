"""Which views of which images a features file holds, and in which order."""

from dataclasses import asdict, dataclass

import numpy as np
from jaxtyping import UInt8

from orbithash.data import ImageSource
from orbithash.data.augmentation import read_training_view
from orbithash.data.transforms import read_view
from orbithash.networks import View


@dataclass(frozen=True)
class ImageView:
    """One view of an image: number 0 is the one that is encoded, 1 its mirror image, then crops."""

    row: int
    number: int


def list_views(images: ImageSource, *, n_views: int) -> list[ImageView]:
    """List the encoded view of all images, then `n_views` further views of those that train."""
    rows = images.split.train.tolist()
    further = [ImageView(row, number) for number in range(1, n_views + 1) for row in rows]
    return [ImageView(row, 0) for row in range(len(images))] + further


def read_image_view(
    image_view: ImageView, images: ImageSource, view: View
) -> UInt8[np.ndarray, "side side 3"]:
    """Read the pixels of a view; its row and number determine a random crop.

    The mirror image comes first, because it is closer to the encoded view than crops are.
    """
    image = images.image(image_view.row)
    if image_view.number <= 1:
        pixels = read_view(image, **asdict(view))
        return pixels[:, ::-1] if image_view.number else pixels
    return read_training_view(
        image,
        crop=view.crop,
        rng=np.random.default_rng([image_view.row, image_view.number]),
        keep_shape=view.keep_shape,
        interpolation=view.interpolation,
    )
