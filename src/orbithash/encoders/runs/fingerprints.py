"""Fingerprints of features and runs: equal if all inputs are equal."""

import hashlib
import json
from collections.abc import Set
from dataclasses import asdict
from typing import Any

import numpy as np
from jaxtyping import Shaped
from torch import nn

from orbithash.data import ImageSource, LabelledFeatures, Split
from orbithash.data.augmentation import CROP_SETTINGS
from orbithash.encoders.runs.record import Training
from orbithash.errors import InputError
from orbithash.networks import PhotoBackbone


def feature_fingerprint(
    images: ImageSource, backbone: PhotoBackbone, *, runtime: str, n_views: int = 0
) -> str:
    """Return all that determines the features of images, as a JSON object.

    That is the backbone, its weights by value, its views, the runtime, and the images with labels
    and split. An image counts as changed when its size in bytes or its modification time differs;
    the folder may have moved.
    """
    return json.dumps(
        {
            "backbone": {"type": type(backbone).__name__, **backbone.arguments},
            "weights": weights_digest(backbone),
            "view": asdict(backbone.view),
            "number of views": n_views,
            "parts that views show": CROP_SETTINGS if n_views else None,
            "runtime": runtime,
            "images": images_digest(images),
        }
    )


def data_digest(data: ImageSource | LabelledFeatures) -> str:
    """Return a digest of the images or features, with labels and split."""
    if isinstance(data, LabelledFeatures):
        return features_digest(data)
    return images_digest(data)


def weights_digest(network: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, weight in sorted(network.state_dict().items()):
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}\n".encode())
        # Contiguous: the digest must not depend on the memory layout.
        digest.update(weight.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def images_digest(images: ImageSource) -> str:
    digest = hashlib.sha256()
    for row, path in enumerate(images.paths):
        digest.update(f"{path}\t{images.stamp(row)}\n".encode())
    for array in (images.labels, *split_rows(images.split)):
        digest.update(f"{array.shape}".encode() + array.astype("<i8").tobytes())
    digest.update("\n".join(images.classes).encode())
    return digest.hexdigest()


def features_digest(data: LabelledFeatures) -> str:
    views = (data.views.features, data.views.of) if data.views else ()
    return arrays_digest(data.features, data.labels, *split_rows(data.split), *views)


def split_rows(split: Split) -> list[Shaped[np.ndarray, " _"]]:
    rows = [split.train, split.query, split.database]
    # Left out when empty, which keeps the digests of earlier versions.
    return rows + [part for part in (split.validation, split.unlabelled) if len(part)]


def arrays_digest(*arrays: Shaped[np.ndarray, "..."]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def changed_settings(before: str, now: str, *, ignored: Set[str] = frozenset()) -> str:
    """Return the names of the settings that differ between two JSON objects, joined by "and".

    >>> changed_settings('{"backbone": "a", "view": 1}', '{"backbone": "b", "view": 1}')
    'backbone'
    """
    old, new = parsed(before), json.loads(now)
    names = [name for name in new | old if name not in ignored]
    return " and ".join(name for name in names if old.get(name) != new.get(name))


def recorded_weights(data: LabelledFeatures) -> str | None:
    """Return the digest of the weights that extracted the features, if they record it."""
    digest = parsed(data.made_with).get("weights")
    return digest if isinstance(digest, str) else None


def check_features_by(training: Training | None, backbone: nn.Module) -> None:
    """Raise if a run was trained on features of another network, as far as it records it."""
    recorded = training.record.features_by if training else None
    if recorded not in (None, weights_digest(backbone)):
        raise InputError(
            "the run was trained on features of another network, or of other weights; give the "
            "backbone and the weights that `orbithash features` had"
        )


def parsed(fingerprint: str) -> dict[str, Any]:
    try:
        return dict(json.loads(fingerprint))
    except (TypeError, ValueError, RecursionError):  # made by another program
        return {}
