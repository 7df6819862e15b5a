"""Tiny image files whose classes are colours, so that a small network learns them in seconds."""

from pathlib import Path

import numpy as np
from PIL import Image

from image_files import save
from orbithash.data import ImageFiles, Split


def coloured(folder: Path, *, classes: int = 4, per_class: int = 8, seed: int = 0) -> ImageFiles:
    """Write class folders; the last quarter of every class are queries, the rest trains."""
    rng = np.random.default_rng(seed)
    paths, query_flags = [], []
    for label in range(classes):
        colour = rng.integers(0, 256, 3)
        for number in range(per_class):
            pixels = (colour + rng.normal(0, 40, (20, 24, 3))).clip(0, 255).astype(np.uint8)
            paths.append(f"{label}/{number}.png")
            save(Image.fromarray(pixels), folder / paths[-1])
            query_flags.append(number >= 0.75 * per_class)
    is_query = np.array(query_flags)
    train = np.flatnonzero(~is_query)
    return ImageFiles(
        root=folder,
        paths=tuple(paths),
        labels=np.repeat(np.arange(classes), per_class),
        classes=tuple(str(label) for label in range(classes)),
        split=Split(train=train, query=np.flatnonzero(is_query), database=train),
    )


def write_table(images: ImageFiles, file: Path) -> Path:
    """Write the images as a .csv for the commands."""
    queries = set(images.split.query.tolist())
    lines = ["path,labels,split"]
    for row, path in enumerate(images.paths):
        part = "query" if row in queries else "train+database"
        lines.append(f"{images.root / path},{images.labels[row]},{part}")
    file.write_text("\n".join(lines) + "\n")
    return file
