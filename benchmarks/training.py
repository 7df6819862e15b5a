"""Training a head on features: order-aware beside plain triplets, and the default recipe's time.

    python benchmarks/training.py [EPOCHS]

As many vectors as CUB-200-2011 trains with, 5,994 of 1,024 numbers in 200 classes, made up; codes
of 64 bits. Both losses take the same steps in turns, and the fastest epoch of each counts. With
fewer EPOCHS than the recipe has, the time of the whole is scaled up from them.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that wait should sleep

import sys
from dataclasses import replace

import numpy as np
import torch

from measure import at_most
from orbithash.data import LabelledFeatures, Split
from orbithash.evaluation import mean_average_precision
from orbithash.training import PRESETS, Trained, train_on_features

ROWS, DIMENSIONS, CLASSES, BITS = 5994, 1024, 200, 64
TURNS, EPOCHS_OF_A_TURN = 3, 2
RATIO_BAR, SECONDS_BAR = 2, 300


def main() -> int:
    recipe = PRESETS["default"].epochs
    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else recipe
    data = made_up()
    print(f"training on {ROWS} × {DIMENSIONS} features, {torch.get_num_threads()} threads")
    learn(data, "order-aware", epochs=1)  # compiles, or loads what was compiled before
    fastest = {"order-aware": float("inf"), "triplet": float("inf")}
    for _ in range(TURNS):
        for method, least in fastest.items():
            history = learn(data, method, epochs=EPOCHS_OF_A_TURN).history
            fastest[method] = min(least, *(epoch.seconds for epoch in history))
    whole = learn(data, "order-aware", epochs=epochs).seconds * recipe / epochs
    passed = [
        at_most("times plain triplets", fastest["order-aware"] / fastest["triplet"], RATIO_BAR),
        at_most(f"seconds of {recipe} epochs, from {epochs}", whole, SECONDS_BAR),
    ]
    return 0 if all(passed) else 1


def learn(data: LabelledFeatures, method: str, *, epochs: int) -> Trained:
    settings = replace(PRESETS["default"], epochs=epochs)
    return train_on_features(data, method, BITS, settings, score=mean_average_precision)


def made_up() -> LabelledFeatures:
    """Classes as clouds that overlap, so that there is something left to learn."""
    rng = np.random.default_rng(0)
    labels = np.arange(ROWS) % CLASSES
    centres = rng.standard_normal((CLASSES, DIMENSIONS))
    features = (centres[labels] + 4 * rng.standard_normal((ROWS, DIMENSIONS))).astype(np.float32)
    rows = np.arange(ROWS)
    return LabelledFeatures(features, labels, Split(train=rows, query=rows, database=rows))


if __name__ == "__main__":
    sys.exit(main())
