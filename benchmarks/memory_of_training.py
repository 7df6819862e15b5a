"""The memory of fine-tuning on many image files: none of them stays in memory.

    python benchmarks/memory_of_training.py [IMAGES]

One epoch of a small network on files of 64 × 64 pixels, by default 100,000. The figure is the peak
of the process and its workers together, above the memory before the first image was listed; shared
pages count once.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # waiting threads should sleep

import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from measure import at_most
from orbithash.training import train  # imported here, so that only training itself is measured

CLASSES, SIDE = 100, 64
BAR = 500  # MiB; 100,000 images are 1,172 MiB when decoded, and four times that as inputs


def main() -> int:
    n_images = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder), n_images)
        before = mebibytes_of_all_processes()
        with sampled_memory() as samples:
            train(folder, bits=32, backbone="small-cnn", epochs=1, progress=False)
    decoded = n_images * SIDE * SIDE * 3 / 2**20
    print(f"fine-tuning on {n_images} images, {decoded:.0f} MiB when decoded")
    peak = max(samples)
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
def sampled_memory(seconds: float = 0.2) -> Iterator[list[float]]:
    """Yield a list of the memory of all processes, measured regularly while the block runs."""
    samples: list[float] = []
    done = threading.Event()

    def measure() -> None:
        while not done.wait(seconds):
            samples.append(mebibytes_of_all_processes())

    thread = threading.Thread(target=measure)
    thread.start()
    try:
        yield samples
    finally:
        done.set()
        thread.join()


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
    """Return the content of a file; "" if its process has ended."""
    try:
        return file.read_text()
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
