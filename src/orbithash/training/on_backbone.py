"""Training a head, or fitting a hasher, on the features of a frozen backbone."""

import hashlib
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from orbithash.data import ImageSource, LabelledFeatures
from orbithash.encoders import Encoder, Epoch, ImageEncoder
from orbithash.encoders.extraction.extract import ImageView, read_image_view, training_features
from orbithash.encoders.runtime import choose_runtime, run_by
from orbithash.errors import UnreadableImageError
from orbithash.networks import PhotoBackbone
from orbithash.training.checkpoint import Checkpoints
from orbithash.training.hooks import Hooks
from orbithash.training.machine.distributed import SINGLE_PROCESS, Processes
from orbithash.training.machine.environment import Interrupted, seeded
from orbithash.training.machine.precision import check_precision
from orbithash.training.methods import Method, plan_training
from orbithash.training.on_arrays import (
    copy_head,
    empty_head,
    fit_hasher,
    predict_head_seconds,
    train_on_arrays,
)
from orbithash.training.settings import TrainingSettings

N_VIEWS = 4  # besides the view that is encoded: the mirror image, and random crops
EXPORT_SECONDS = 10.0  # of a network to onnxruntime, which then is twice as fast as torch


def train_head(
    images: ImageSource,
    backbone: PhotoBackbone,
    method: Method,
    n_bits: int,
    settings: TrainingSettings,
    *,
    n_views: int = N_VIEWS,
    cache: Path | None = None,
    init: Encoder | None = None,
    seed: int = 0,
    hooks: Hooks | None = None,
    checkpoints: Checkpoints | None = None,
    processes: Processes = SINGLE_PROCESS,
) -> tuple[ImageEncoder, list[Epoch]]:
    """Train a head on the features of the training images, or fit a hasher to them.

    The features of each image, and of `n_views` further views of it, are computed once and kept in
    the folder `cache`, so that a stopped run resumes. The codes are the same as those of a run on
    the file that `orbithash features --views` writes. Queries are never used.
    """
    hooks = hooks or Hooks()
    of_head = init.head if isinstance(init, ImageEncoder) else init
    check_head(images, backbone.n_features, method, n_bits, settings, of_head, seed=seed)

    features = frozen_features(images, backbone, cache, n_views, hooks, processes)
    if method.is_loss:
        digest = hashlib.sha256(features.made_with.encode()).hexdigest()
        head, history = train_on_arrays(
            features,
            method,
            n_bits,
            settings,
            digest=digest,
            init=of_head,
            seed=seed,
            hooks=hooks,
            checkpoints=checkpoints,
            processes=processes,
        )
        return ImageEncoder(backbone.eval(), head), history
    fitted = fit_hasher(features, method, n_bits, seed=seed)
    return ImageEncoder(backbone.eval(), fitted), []


def frozen_features(
    images: ImageSource,
    backbone: PhotoBackbone,
    cache: Path | None,
    n_views: int,
    hooks: Hooks,
    processes: Processes,
) -> LabelledFeatures:
    """Return the backbone's features of the images that train or validate; the cache keeps them."""

    def progress(done: int, total: int) -> None:
        hooks.after_images(done, total)
        if processes.count == 1 and hooks.stopping():
            raise Interrupted

    with features_folder(cache) as folder, processes.one_after_another(shared=cache is not None):
        features, unreadable = training_features(
            images, backbone, folder, n_views=n_views, progress=progress
        )
    for path, reason in unreadable.items():
        hooks.unreadable(path, reason)
    return features


def teacher_vectors(
    images: ImageSource, features: LabelledFeatures
) -> Float32[np.ndarray, "images d"]:
    """Return a vector for each image, NaN for images without features, which do not train."""
    row_of = {path: row for row, path in enumerate(features.paths or ())}
    rows = np.array([row_of.get(path, -1) for path in images.paths])
    vectors: np.ndarray = features.features[rows]
    vectors[rows < 0] = np.nan
    return vectors


def check_head(
    images: ImageSource,
    n_features: int,
    method: Method,
    n_bits: int,
    settings: TrainingSettings,
    init: Encoder | None,
    *,
    seed: int,
) -> None:
    """Raise for wrong arguments before features are computed, which may take hours."""
    if not method.is_loss:
        method.hasher(n_bits=n_bits, seed=seed)
        return
    plan = plan_training(
        images.labels, images.split, method, n_bits, settings, seed=seed, classes=images.classes
    )
    check_precision(settings.precision, "cpu")
    if init is not None:
        with seeded(seed):
            copy_head(init, empty_head(n_features, n_bits, settings, plan))


@contextmanager
def features_folder(cache: Path | None) -> Iterator[Path]:
    """Yield the given folder, or a temporary one."""
    if cache is not None:
        yield cache
        return
    with tempfile.TemporaryDirectory(prefix="orbithash-") as folder:
        yield Path(folder)


def predict_seconds(
    images: ImageSource,
    backbone: PhotoBackbone,
    method: Method,
    n_bits: int,
    settings: TrainingSettings,
    *,
    n_views: int,
    seed: int,
) -> tuple[float, float]:
    """Predict the time to compute the features, and to train the head, from short trials."""
    n_images = len(images.split.validation) + len(images.split.learned) * (1 + n_views)
    by_onnx = choose_runtime(backbone, n_images=n_images) == "onnxruntime"
    per_image = seconds_per_image(images, backbone)
    features = n_images * per_image / (2 if by_onnx else 1) + EXPORT_SECONDS * by_onnx
    if not method.is_loss:
        return features, 0.0
    of_head = predict_head_seconds(images, backbone.n_features, method, n_bits, settings, seed=seed)
    return features, of_head


def seconds_per_image(images: ImageSource, backbone: PhotoBackbone, n_images: int = 8) -> float:
    """Return the time that torch takes to read and describe an image."""
    run = run_by("torch", backbone, side=backbone.view.crop)
    started = time.perf_counter()
    pixels = []
    for row in images.split.train[:n_images].tolist():
        try:
            pixels.append(read_image_view(ImageView(row, 2), images, backbone.view))
        except UnreadableImageError:
            continue
    reading = time.perf_counter() - started
    if not pixels:
        return 0.0
    batch = np.stack(pixels)
    run(batch)  # the first call is slower
    started = time.perf_counter()
    run(batch)
    return (reading / 2 + time.perf_counter() - started) / len(pixels)  # threads read ahead
