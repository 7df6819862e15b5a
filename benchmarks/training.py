"""Training a head on features: order-aware against plain triplets, and the default recipe's time.

    python benchmarks/training.py [EPOCHS]

Synthetic features of the size of CUB-200-2011's training set, 5,994 vectors of 1,024 numbers in 200
classes; codes of 64 bits. Both losses take the same steps, alternating, and the fastest epoch of
each counts. With fewer EPOCHS than the recipe has, its time is extrapolated.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # waiting threads should sleep

import sys

import numpy as np
import torch

import orbithash
from measure import at_most
from orbithash.encoders import Training
from orbithash.training import PRESETS

ROWS, DIMENSIONS, CLASSES, BITS = 5994, 1024, 200, 64
TURNS, EPOCHS_PER_TURN = 3, 2
RATIO_BAR, SECONDS_BAR = 2, 300


def main() -> int:
    recipe = PRESETS["default"].epochs
    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else recipe
    data = overlapping_clouds()
    print(f"training on {ROWS} × {DIMENSIONS} features, {torch.get_num_threads()} threads")
    trained(data, "order-aware", epochs=1)  # compiles the kernels, or loads them
    fastest = {"order-aware": float("inf"), "triplet": float("inf")}
    for _ in range(TURNS):
        for method, shortest in fastest.items():
            history = trained(data, method, epochs=EPOCHS_PER_TURN).history
            fastest[method] = min(shortest, *(epoch.seconds for epoch in history))
    total = trained(data, "order-aware", epochs=epochs).seconds * recipe / epochs
    passed = [
        at_most("times plain triplets", fastest["order-aware"] / fastest["triplet"], RATIO_BAR),
        at_most(f"seconds of {recipe} epochs, from {epochs}", total, SECONDS_BAR),
    ]
    return 0 if all(passed) else 1


def trained(data: tuple[np.ndarray, np.ndarray], method: str, *, epochs: int) -> Training:
    encoder = orbithash.train(data, BITS, method=method, epochs=epochs, progress=False)
    assert encoder.training is not None
    return encoder.training


def overlapping_clouds() -> tuple[np.ndarray, np.ndarray]:
    """Return features and labels of classes that overlap, so that there is much to learn."""
    rng = np.random.default_rng(0)
    labels = np.arange(ROWS) % CLASSES
    centres = rng.standard_normal((CLASSES, DIMENSIONS))
    features = (centres[labels] + 4 * rng.standard_normal((ROWS, DIMENSIONS))).astype(np.float32)
    return features, labels


if __name__ == "__main__":
    sys.exit(main())
