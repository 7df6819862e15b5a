"""Image files for tests: photographs they are not, but they decode like them."""

from pathlib import Path

import numpy as np
from PIL import Image


def noise(size: tuple[int, int], *, seed: int = 0) -> Image.Image:
    """Coloured noise of the given width and height."""
    width, height = size
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def save(image: Image.Image, path: Path, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)
    return path


def class_folder(folder: Path, counts: dict[str, int]) -> Path:
    """A folder of class folders with so many small images of each class."""
    seed = 0
    for name, count in counts.items():
        for number in range(count):
            save(noise((40, 30), seed=seed), folder / name / f"{number}.jpg")
            seed += 1
    return folder


def cub_folder(folder: Path, *, species: int = 3, images_each: int = 4) -> Path:
    """The layout of CUB-200-2011; every second image trains, and ids are not in the row order."""
    lines: dict[str, list[str]] = {"images": [], "image_class_labels": [], "train_test_split": []}
    number = species * images_each
    for label in range(1, species + 1):
        name = f"{label:03d}.Bird_{label}"
        for image in range(images_each):
            path = f"{name}/Bird_{label}_{image:04d}.jpg"
            save(noise((50, 40), seed=number), folder / "images" / path)
            lines["images"].append(f"{number} {path}")
            lines["image_class_labels"].append(f"{number} {label}")
            lines["train_test_split"].append(f"{number} {image % 2}")
            number -= 1
    for name, content in lines.items():
        # The tables need not list the images in the same order.
        ordered = content if name == "images" else content[::-1]
        (folder / f"{name}.txt").write_text("\n".join(ordered) + "\n")
    return folder
