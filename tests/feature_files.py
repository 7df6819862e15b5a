"""Small features files whose classes are Gaussian clusters, so that any method learns them."""

from pathlib import Path

import numpy as np


def clouds(*, classes=5, per_class=20, d=16, many_labels=False, seed=0) -> dict[str, np.ndarray]:
    """Return the arrays of a features file; every fourth row is a query, the others train."""
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
    is_query = np.arange(len(labels)) % 4 == 0
    train = np.flatnonzero(~is_query)
    return {
        "features": features,
        "labels": labels,
        "train": train,
        "query": np.flatnonzero(is_query),
        "database": train,
        "paths": np.array([f"{row}.jpg" for row in range(len(labels))]),
    }


def write_clouds(file: Path, **options) -> Path:
    np.savez(file, **clouds(**options))
    return file
