"""Small feature files: classes as clouds of points, so that any method can learn them."""

from pathlib import Path

import numpy as np


def clouds(*, classes=5, per_class=20, d=16, many_labels=False, seed=0) -> dict[str, np.ndarray]:
    """The arrays of a feature file: of each class three quarters train, and a quarter asks."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((classes, d))
    labels = np.repeat(np.arange(classes), per_class)
    if many_labels:
        labels = np.eye(classes, dtype=np.uint8)[labels]
        labels[rng.random(labels.shape) < 0.1] = 1
        means = labels @ centres
    else:
        means = centres[labels]
    features = (means + 0.6 * rng.standard_normal((len(labels), d))).astype(np.float32)
    asks = np.arange(len(labels)) % 4 == 0
    rest = np.flatnonzero(~asks)
    return {
        "features": features,
        "labels": labels,
        "train": rest,
        "query": np.flatnonzero(asks),
        "database": rest,
        "paths": np.array([f"{row}.jpg" for row in range(len(labels))]),
    }


def write_clouds(file: Path, **options) -> Path:
    np.savez(file, **clouds(**options))
    return file
