"""Training a head, or fitting a hasher, on the features of a frozen backbone."""

import hashlib
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from orbithash.data import ImageSource
from orbithash.encoders import Encoder, Epoch, ImageEncoder
from orbithash.encoders.extraction.extract import ImageView, read_image_view, training_features
from orbithash.encoders.runtime import choose_runtime, run_by
from orbithash.errors import UnreadableImageError
from orbithash.networks import FeatureHead, PhotoBackbone
from orbithash.training.batches import Batch
from orbithash.training.checkpoint import Checkpoints
from orbithash.training.hooks import Hooks
from orbithash.training.loop import step
from orbithash.training.machine.distributed import SINGLE_PROCESS, Processes
from orbithash.training.machine.environment import Interrupted, seeded, steady_threads
from orbithash.training.methods import Method, TrainingPlan, plan_training
from orbithash.training.on_arrays import fit_hasher, train_on_arrays
from orbithash.training.optimization import ParameterGroup, make_optimizer
from orbithash.training.settings import TrainingSettings
from orbithash.training.state import BestEpoch, Memory, TrainingState

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
    if method.is_loss:
        digest = hashlib.sha256(features.made_with.encode()).hexdigest()
        head, history = train_on_arrays(
            features,
            method,
            n_bits,
            settings,
            digest=digest,
            init=init.head if isinstance(init, ImageEncoder) else init,
            seed=seed,
            hooks=hooks,
            checkpoints=checkpoints,
            processes=processes,
        )
        return ImageEncoder(backbone.eval(), head), history
    fitted = fit_hasher(features, method, n_bits, seed=seed)
    return ImageEncoder(backbone.eval(), fitted), []


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
    n_images = len(images.split.validation) + len(images.split.train) * (1 + n_views)
    by_onnx = choose_runtime(backbone, n_images=n_images) == "onnxruntime"
    per_image = seconds_per_image(images, backbone)
    features = n_images * per_image / (2 if by_onnx else 1) + EXPORT_SECONDS * by_onnx
    if not method.is_loss:
        return features, 0.0
    plan = plan_training(images.labels, images.split, method, n_bits, settings, seed=seed)
    per_step = seconds_per_step(plan, backbone.n_features, n_bits, settings, seed=seed)
    return features, settings.epochs * len(plan.batches) * per_step


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


@steady_threads()
def seconds_per_step(
    plan: TrainingPlan, n_features: int, n_bits: int, settings: TrainingSettings, *, seed: int
) -> float:
    """Return the time of a training step, measured on random features."""
    with seeded(seed):
        head = FeatureHead(n_features, n_bits, hidden=settings.hidden, dropout=settings.dropout)
        groups = [ParameterGroup(tuple(head.parameters()))]
        optimizer = make_optimizer(
            [*groups, ParameterGroup(tuple(plan.loss.parameters()))], settings
        )
        best = BestEpoch(head, patience=settings.patience)
        state = TrainingState(head, plan.loss, optimizer, Memory(settings.memory), best)
        seconds = []
        for rows in islice(plan.batches(0), 4):
            labels = torch.from_numpy(plan.train_labels[rows])
            started = time.perf_counter()
            step(
                head,
                state,
                Batch(torch.randn(len(rows), n_features), labels),
                replace(settings, clip=0.0),
                SINGLE_PROCESS,
            )
            seconds.append(time.perf_counter() - started)
    return float(np.median(seconds[1:] or seconds))  # the first step compiles the kernels
