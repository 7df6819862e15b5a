"""What features depend on, as one line of text: equal lines mean equal features."""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
from jaxtyping import Shaped
from torch import nn

from orbithash.data import ImageFiles, LabelledFeatures
from orbithash.data.augmentation import PARTS
from orbithash.networks import PhotoBackbone


def fingerprint(
    images: ImageFiles, backbone: PhotoBackbone, *, runtime: str, n_views: int = 0
) -> str:
    """The backbone, its weights, its views, what runs it, and the images with labels and split.

    An image counts as changed when its size in bytes or its time of change differs; its folder may
    have moved. The weights count by value, wherever they came from. It is an object in JSON.
    """
    return json.dumps(
        {
            "backbone": {"type": type(backbone).__name__, **backbone.arguments},
            "weights": digest_of_weights(backbone),
            "view": asdict(backbone.view),
            "number of views": n_views,
            "parts that views show": PARTS if n_views else None,
            "runtime": runtime,
            "images": digest_of_images(images),
        }
    )


def digest_of_weights(network: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, weight in sorted(network.state_dict().items()):
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}\n".encode())
        # Row by row, however the tensor lies in memory.
        digest.update(weight.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def digest_of_images(images: ImageFiles) -> str:
    digest = hashlib.sha256()
    for row, path in enumerate(images.paths):
        digest.update(f"{path}\t{size_and_time(images.file(row))}\n".encode())
    split = images.split
    for array in (images.labels, split.train, split.query, split.database):
        digest.update(f"{array.shape}".encode() + array.astype("<i8").tobytes())
    digest.update("\n".join(images.classes).encode())
    return digest.hexdigest()


def digest_of_features(data: LabelledFeatures) -> str:
    split = data.split
    views = (data.views.features, data.views.of) if data.views else ()
    return digest_of_arrays(
        data.features, data.labels, split.train, split.query, split.database, *views
    )


def size_and_time(file: Path) -> str:
    try:
        status = file.stat()
    except OSError:
        return "missing"
    return f"{status.st_size} {status.st_mtime_ns}"


def digest_of_arrays(*arrays: Shaped[np.ndarray, "..."]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
