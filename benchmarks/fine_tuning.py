"""Fine-tuning GoogLeNet on image files, against a plain PyTorch loop in the same run.

    python benchmarks/fine_tuning.py [FOLDER OF CLASS FOLDERS]

The plain loop decodes with Pillow in the same process, uses contiguous tensors and the C library's
default memory allocation. Network, loss, optimizer, images, batches and threads are the same. The
two alternate, each in its own process, and the fastest epoch counts. Without a folder, photographs
are synthetic.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # waiting threads should sleep

import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from measure import at_least
from orbithash.data import ClassBalancedBatches, ImageFiles, class_folders
from orbithash.losses import OrderAwareTripletLoss
from orbithash.networks import GoogLeNet, HashingNetwork
from orbithash.training import TrainingSettings, seeded, train_network
from orbithash.training.batches import ImageBatches, ImageReader
from orbithash.training.machine.environment import keep_freed_memory
from orbithash.training.on_images import training_view

CLASSES, IMAGES_PER_CLASS = 8, 4  # of a batch
BATCHES, EPOCHS, TURNS = 2, 3, 2
SETTINGS = TrainingSettings(epochs=EPOCHS, learning_rate=1e-5)
BAR = 1.3


def main() -> int:
    if len(sys.argv) == 3:  # one competitor, in its own process
        competitor = {"ours": our_seconds, "plain": plain_seconds}[sys.argv[1]]
        print(competitor(class_folders(Path(sys.argv[2]))))
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = sys.argv[1] if len(sys.argv) == 2 else str(photographs(Path(temporary)))
        seconds: dict[str, list[float]] = {"plain": [], "ours": []}
        for _ in range(TURNS):
            for name, measured in seconds.items():
                printed = subprocess.check_output([sys.executable, __file__, name, folder])
                measured.append(float(printed))
    plain, ours = min(seconds["plain"]), min(seconds["ours"])
    batch = CLASSES * IMAGES_PER_CLASS
    print(
        f"fine-tuning GoogLeNet, batches of {batch}, {torch.get_num_threads()} threads: "
        f"{batch * BATCHES / ours:.1f} images/s, plain loop {batch * BATCHES / plain:.1f}"
    )
    return 0 if at_least("times faster than a plain loop", plain / ours, BAR) else 1


def our_seconds(images: ImageFiles) -> float:
    """Return the seconds of the fastest epoch of the library's loop."""
    keep_freed_memory()
    network = initial_network()
    network.to(memory_format=torch.channels_last)
    rows = np.arange(len(images))
    reader = ImageReader(images, rows, images.labels, training_view(network.backbone), seed=0)
    workers = min(2, os.cpu_count() or 1)
    source = ImageBatches(reader, batches(images), epochs=EPOCHS, n_workers=workers)
    with closing(source):
        history = train_network(network, OrderAwareTripletLoss(), source, SETTINGS)
    return min(epoch.seconds for epoch in history)


def plain_seconds(images: ImageFiles) -> float:
    """Return the seconds of the fastest epoch of a loop of ten lines."""
    network, loss = initial_network().train(), OrderAwareTripletLoss()
    optimizer = torch.optim.AdamW(network.parameters(), lr=SETTINGS.learning_rate)
    seconds = []
    for epoch in range(EPOCHS):
        started = time.perf_counter()
        for rows in batches(images)(epoch):
            rng = np.random.default_rng([epoch, int(rows[0])])
            pixels = np.stack([plain_view(images.file(int(row)), rng) for row in rows])
            inputs = torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy()).float()
            value = loss(network(inputs), torch.from_numpy(images.labels[rows]))
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def plain_view(file: Path, rng: np.random.Generator) -> np.ndarray:
    image = Image.open(file).convert("RGB")
    share = rng.uniform(0.5, 1)
    width, height = share * image.width, share * image.height
    left, top = rng.random() * (image.width - width), rng.random() * (image.height - height)
    box = (left, top, left + width, top + height)
    part = image.resize((224, 224), Image.Resampling.BILINEAR, box=box)
    return np.asarray(part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if share < 0.75 else part)


def initial_network() -> HashingNetwork:
    with seeded(0):
        return HashingNetwork(GoogLeNet(), 32)


class FewBatches(ClassBalancedBatches):
    """The first batches of every epoch, which are enough to measure."""

    def __len__(self) -> int:
        return BATCHES


def batches(images: ImageFiles) -> FewBatches:
    return FewBatches(images.labels, CLASSES, IMAGES_PER_CLASS)


def photographs(folder: Path) -> Path:
    """Write JPEGs of a usual size that decode like photographs: smooth, with some noise."""
    rng = np.random.default_rng(0)
    for number in range(CLASSES * IMAGES_PER_CLASS * BATCHES):
        coarse = rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        smooth = np.asarray(Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC))
        pixels = (smooth + rng.normal(0, 8, smooth.shape)).clip(0, 255).astype(np.uint8)
        file = folder / f"class {number % CLASSES}" / f"{number}.jpg"
        file.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(file, quality=90)
    return folder


if __name__ == "__main__":
    sys.exit(main())
