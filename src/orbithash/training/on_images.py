"""Fine-tuning on images: a backbone and its head, trained together with a loss."""

import os
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from orbithash.codes import check_n_bits
from orbithash.data import ImageFiles
from orbithash.data.augmentation import read_training_view
from orbithash.encoders import FeatureEncoder, ImageEncoder
from orbithash.encoders.runs.fingerprints import digest_of_images, digest_of_weights
from orbithash.errors import InputError
from orbithash.losses import LOSSES
from orbithash.networks import HashingNetwork, PhotoBackbone
from orbithash.networks.backbones import check_device
from orbithash.training.checkpoint import Checkpoints
from orbithash.training.distributed import ALONE, Processes
from orbithash.training.environment import Interrupted, seeded
from orbithash.training.history import Epoch, Trained
from orbithash.training.image_batches import ImageBatches, ImageReader
from orbithash.training.loop import train
from orbithash.training.methods import Labels, Score, check_method, prepare, run_settings
from orbithash.training.on_features import start_from
from orbithash.training.optimization import fine_tuning_groups
from orbithash.training.settings import TrainingSettings

# Images that train and answer the held-out ones when an epoch is validated. All of them would take
# a third of an epoch's time, and the same epoch is best with fewer.
VALIDATION_DATABASE = 2000


def train_on_images(
    images: ImageFiles,
    backbone: PhotoBackbone,
    method: str,
    n_bits: int,
    settings: TrainingSettings,
    *,
    score: Score,
    options: Mapping[str, Any] | None = None,
    init: ImageEncoder | FeatureEncoder | None = None,
    seed: int = 0,
    n_workers: int | None = None,
    device: str = "cpu",
    after_epoch: Callable[[Epoch], None] = lambda epoch: None,
    after_step: Callable[[float, float], None] = lambda epochs, loss: None,
    unreadable: Callable[[str, str], None] = lambda path, reason: None,
    checkpoints: Checkpoints | None = None,
    stopping: Callable[[], bool] = lambda: False,
    processes: Processes = ALONE,
) -> Trained[ImageEncoder]:
    """Fine-tune the backbone with a head on the training images, by any loss.

    The head is new, unless it comes from another run: on images, whose backbone comes with it, or
    on features of this backbone.

    Queries are never looked at: the epoch is chosen by `score` on training images held out, which
    ask for some of those that train. The seed decides the images held out, a new head's start,
    the batches and what is seen of each image, never the method or the number of workers.

    `unreadable` is told the path and the reason of every image that cannot be read, as often as it
    is met; another of its class stands in for it.
    """
    check_for_images(method)
    check_n_bits(n_bits)
    check_device(device)
    rows = images.split.train
    prepared = prepare(
        images.labels[rows],
        method,
        n_bits,
        settings,
        options=options or {},
        seed=seed,
        classes=images.classes,
    )
    with seeded(seed):
        network = start_network(backbone, n_bits, settings, init).to(device)
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        made_with = run_settings(method, n_bits, settings, options or {}, seed) | {
            "images": digest_of_images(images),
            "backbone": {"type": type(backbone).__name__, **backbone.arguments},
            "weights": digest_of_weights(network.backbone),
            "init": None if init is None else digest_of_weights(network),
        }
        side = backbone.view.crop
        processes.leave_unused(network, torch.zeros(1, 3, side, side, device=device))
        encoder = ImageEncoder(network)
        source = ImageBatches(
            ImageReader(
                images,
                rows[prepared.rest],
                prepared.labels[prepared.rest],
                training_view(backbone),
                seed=seed,
                processes=processes,
            ),
            prepared.batches,
            epochs=settings.epochs,
            n_workers=min(4, os.cpu_count() or 1) if n_workers is None else n_workers,
            unreadable=unreadable,
        )
        validation = Validation(
            images,
            prepared.labels,
            asking=prepared.held_out,
            answering=some_of(prepared.rest, VALIDATION_DATABASE, seed=seed),
            score=score,
            unreadable=unreadable,
            stopping=stopping,
            processes=processes,
        )
        with closing(source):
            begun = checkpoints is not None and checkpoints.file.exists()
            if init is None and not begun:
                fit_start(network, source, processes)
            history = train(
                network,
                prepared.loss.to(device),
                source,
                settings.for_batches_of(prepared.batches.batch_size),
                groups=fine_tuning_groups(network.backbone, network.head, settings),
                validate=partial(validation, encoder) if len(prepared.held_out) else None,
                after_epoch=after_epoch,
                after_step=after_step,
                checkpoints=checkpoints and checkpoints.of(made_with),
                stopping=stopping,
                processes=processes,
            )
    return Trained(encoder, tuple(history), sum(epoch.seconds for epoch in history))


def check_for_images(method: str) -> None:
    check_method(method)
    if method not in LOSSES:
        raise InputError(
            f"{method} is fitted to features, not to images; make them with `orbithash features` "
            "and train on their file"
        )


def start_network(
    backbone: PhotoBackbone,
    n_bits: int,
    settings: TrainingSettings,
    init: ImageEncoder | FeatureEncoder | None,
) -> HashingNetwork:
    """The backbone with a head at a random start, or at the weights of another run's."""
    network = HashingNetwork(backbone, n_bits, hidden=settings.hidden, dropout=settings.dropout)
    if isinstance(init, FeatureEncoder):
        start_from(network.head, init)
    elif init is not None:
        if shape_of(network) != shape_of(init.network):
            raise InputError(
                f"the run to start from is {named(init.network)}, but here it is "
                f"{named(network)}; train with the same"
            )
        network.load_state_dict(init.network.state_dict())
    return network


def shape_of(network: HashingNetwork) -> Any:
    """What must be the same where one network starts from another."""
    backbone, head = network.backbone, network.head
    assert isinstance(backbone, PhotoBackbone)
    return type(backbone), backbone.arguments, head.n_bits, head.hidden


def named(network: HashingNetwork) -> str:
    head = network.head
    return f"{type(network.backbone).__name__} with hidden={head.hidden} and {head.n_bits} bits"


@torch.no_grad()
def fit_start(network: HashingNetwork, source: ImageBatches, processes: Processes) -> None:
    """Fit the new head to the first batch, which the backbone sees as when it trains."""
    batch = next(iter(replace(source, n_workers=0)(0)))  # workers would read on
    device = network.head.center.device
    share: Tensor = network.backbone.train()(batch.inputs.to(device))
    network.head.fit_start(processes.gather_constant(share))


def training_view(backbone: PhotoBackbone) -> Any:
    view = backbone.view
    return partial(
        read_training_view,
        crop=view.crop,
        keep_shape=view.keep_shape,
        interpolation=view.interpolation,
    )


def some_of(positions: Int64[np.ndarray, " n"], most: int, *, seed: int) -> Int64[np.ndarray, " m"]:
    """At most so many of the positions, in order."""
    return np.sort(np.random.default_rng(seed).permutation(positions)[:most])


@dataclass(frozen=True, eq=False)
class Validation:
    """Scores an encoder on training images by position: some ask, others answer."""

    images: ImageFiles
    labels: Labels  # of the training images
    asking: Int64[np.ndarray, " asking"]
    answering: Int64[np.ndarray, " answering"]
    score: Score
    unreadable: Callable[[str, str], None]
    stopping: Callable[[], bool]
    processes: Processes = ALONE

    def __call__(self, encoder: ImageEncoder) -> float:
        asking, asking_labels = self.encoded(encoder, self.asking)
        if not len(asking):
            raise InputError(
                f"none of the {len(self.asking)} training images that were held out for validation "
                "can be read; check the files, or train with --validation 0"
            )
        answering, answering_labels = self.encoded(encoder, self.answering)
        return self.score(asking, answering, asking_labels, answering_labels, n_bits=encoder.n_bits)

    def encoded(self, encoder: ImageEncoder, positions: Any) -> tuple[Any, Any]:
        """Codes and labels of what can be read; every process encodes its share."""
        share = positions[self.processes.share(len(positions))]
        rows = self.images.split.train[share]
        files = [self.images.file(int(row)) for row in rows]
        done = encoder.embed_files(files, progress=self.stop_between)
        paths = dict(zip(files, (self.images.paths[row] for row in rows), strict=True))
        for file, reason in done.unreadable.items():
            self.unreadable(paths[file], reason)
        parts = self.processes.gather_objects((done.codes(), self.labels[share][done.readable]))
        codes, labels = zip(*parts, strict=True)
        return np.concatenate(codes), np.concatenate(labels)

    def stop_between(self, done: int) -> None:
        """Validation can take minutes, and nothing is lost: its epoch was saved before."""
        if self.processes.count == 1 and self.stopping():
            raise Interrupted
