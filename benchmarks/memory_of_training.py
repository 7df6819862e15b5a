"""The memory of fine-tuning on many image files: none of them stays there.

    python benchmarks/memory_of_training.py [IMAGES]

One epoch of a small network on so many files of 64 × 64 pixels, 100,000 unless said otherwise. What
counts is the highest sum over the process and its workers, above what the process had before it
knew of any image; pages that several share count once.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that wait should sleep

import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from measure import at_most
from orbithash.data import class_folders
from orbithash.evaluation import mean_average_precision
from orbithash.networks import SmallCNN
from orbithash.training import IMAGE_PRESETS, train_on_images

CLASSES, SIDE = 100, 64
BAR = 500  # MiB; 100,000 images are 1,172 MiB as they are read, and four times that as inputs


def main() -> int:
    n_images = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder), n_images)
        settings = replace(IMAGE_PRESETS["default"], epochs=1)
        before = mebibytes_of_all_processes()
        with watched() as heights:
            images = class_folders(Path(folder))
            network, score = SmallCNN(channels=3), mean_average_precision
            train_on_images(images, network, "order-aware", 32, settings, score=score)
    decoded = n_images * SIDE * SIDE * 3 / 2**20
    print(f"fine-tuning on {n_images} images, {decoded:.0f} MiB when read")
    peak = max(heights)
    print(f"  peak of all processes: {peak:.0f} MiB, {before:.0f} MiB at the start")
    return 0 if at_most("MiB above the start", peak - before, BAR) else 1


def write_images(folder: Path, n_images: int) -> None:
    rng = np.random.default_rng(0)
    for label in range(CLASSES):
        (folder / f"{label:03d}").mkdir()
    for number in range(n_images):
        coarse = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize((SIDE, SIDE))
        image.save(folder / f"{number % CLASSES:03d}" / f"{number}.jpg")


@contextmanager
def watched(seconds: float = 0.2) -> Iterator[list[float]]:
    """What all processes hold together, looked at again and again while the block goes on."""
    heights: list[float] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(seconds):
            heights.append(mebibytes_of_all_processes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield heights
    finally:
        done.set()
        watcher.join()


def mebibytes_of_all_processes() -> float:
    kibibytes = 0
    for pid in [os.getpid(), *descendants(os.getpid())]:
        for line in read(Path(f"/proc/{pid}/smaps_rollup")).splitlines():
            if line.startswith("Pss:"):
                kibibytes += int(line.split()[1])
    return kibibytes / 1024


def descendants(pid: int) -> list[int]:
    children = read(Path(f"/proc/{pid}/task/{pid}/children")).split()
    return [each for child in map(int, children) for each in (child, *descendants(child))]


def read(file: Path) -> str:
    """The file of a process that may end meanwhile."""
    try:
        return file.read_text()
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
