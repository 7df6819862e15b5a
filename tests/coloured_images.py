"""Tiny image files whose classes are colours, so that a small network learns them in seconds."""

from pathlib import Path

import numpy as np
from PIL import Image

from image_files import save
from orbithash.data import ImageFiles, Split


def coloured(folder: Path, *, classes: int = 4, per_class: int = 8, seed: int = 0) -> ImageFiles:
    """A folder of class folders; of every class the last quarter asks, the rest trains."""
    rng = np.random.default_rng(seed)
    paths, asks = [], []
    for label in range(classes):
        colour = rng.integers(0, 256, 3)
        for number in range(per_class):
            pixels = (colour + rng.normal(0, 40, (20, 24, 3))).clip(0, 255).astype(np.uint8)
            paths.append(f"{label}/{number}.png")
            save(Image.fromarray(pixels), folder / paths[-1])
            asks.append(number >= 0.75 * per_class)
    asking = np.array(asks)
    rest = np.flatnonzero(~asking)
    return ImageFiles(
        root=folder,
        paths=tuple(paths),
        labels=np.repeat(np.arange(classes), per_class),
        classes=tuple(str(label) for label in range(classes)),
        split=Split(train=rest, query=np.flatnonzero(asking), database=rest),
    )


def write_table(images: ImageFiles, file: Path) -> Path:
    """The same images as a .csv that the commands take."""
    asks = set(images.split.query.tolist())
    lines = ["path,labels,split"]
    for row, path in enumerate(images.paths):
        part = "query" if row in asks else "train+database"
        lines.append(f"{images.root / path},{images.labels[row]},{part}")
    file.write_text("\n".join(lines) + "\n")
    return file
