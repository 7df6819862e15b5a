"""Fine-tuning on images: a backbone and its head, trained together with a loss."""

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Int64, Shaped
from torch import Tensor

from orbithash.data import ImageSource
from orbithash.data.augmentation import read_training_view
from orbithash.encoders import Encoder, Epoch, ImageEncoder
from orbithash.encoders.image_encoder import BATCH
from orbithash.encoders.runs.fingerprints import weights_digest
from orbithash.errors import InputError
from orbithash.metrics.scoring import evaluate_codes
from orbithash.networks import FeatureHead, HashingNetwork, PhotoBackbone
from orbithash.training.batches import ImageBatches, ImageReader
from orbithash.training.checkpoint import Checkpoints
from orbithash.training.hooks import Hooks
from orbithash.training.loop import train_network
from orbithash.training.machine.distributed import SINGLE_PROCESS, Processes
from orbithash.training.machine.environment import Interrupted, seeded
from orbithash.training.machine.memory import StepCost, measure_step
from orbithash.training.methods import Labels, Method, plan_training, run_identity
from orbithash.training.on_arrays import copy_head
from orbithash.training.optimization import fine_tuning_groups
from orbithash.training.settings import TrainingSettings

# Training images that are searched when an epoch is validated. All of them would take a third of
# an epoch's time, and fewer choose the same epoch.
VALIDATION_DATABASE = 2000


def train_on_images(
    images: ImageSource,
    backbone: PhotoBackbone,
    method: Method,
    n_bits: int,
    settings: TrainingSettings,
    *,
    digest: str = "",
    init: Encoder | None = None,
    teacher: Float32[np.ndarray, "images d"] | None = None,
    seed: int = 0,
    n_workers: int | None = None,
    device: str = "cpu",
    freeze_statistics: bool = False,
    measure: bool = False,
    memory_limit: float | None = None,
    on_cost: Callable[[StepCost, float], None] | None = None,
    hooks: Hooks | None = None,
    checkpoints: Checkpoints | None = None,
    processes: Processes = SINGLE_PROCESS,
) -> tuple[ImageEncoder, list[Epoch]]:
    """Fine-tune the backbone with a head on the training images, by any loss.

    The head is new, or comes from another run: on images, with its backbone, or on features of this
    backbone. Queries are never used: training images held out choose the epoch, searching some of
    those that train. The seed determines the images held out, the initial head, the batches and the
    crops, never the method or the number of workers. `teacher` has a vector for each image, for
    losses that take one.

    With `freeze_statistics` the statistics of batch normalisation stay as they are. With `measure`
    batches are embedded in parts, if they would not fit in `memory_limit` gigabytes, and `on_cost`
    is called with what a step costs and the seconds of an epoch. An unreadable image is passed to
    `hooks.unreadable`, and another of its class takes its place. `digest` is the fingerprint of
    the images.
    """
    hooks = hooks or Hooks()
    plan = plan_training(
        images.labels, images.split, method, n_bits, settings, seed=seed, classes=images.classes
    )
    with seeded(seed):
        network = initial_network(backbone, n_bits, settings, init)
        network.freeze_statistics = freeze_statistics
        network.to(device)
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        identity = run_identity(method, n_bits, settings, seed) | {
            "images": digest,
            "backbone": {"type": type(backbone).__name__, **backbone.arguments},
            "weights": weights_digest(network.backbone),
            "init": None if init is None else weights_digest(network),
        }
        if measure:  # left out otherwise, to resume runs of earlier versions
            identity["tune"] = "whole"
        side = backbone.view.crop
        processes.freeze_unused(network, torch.zeros(1, 3, side, side, device=device))
        encoder = ImageEncoder(network.backbone, network.head)
        choices = (min(4, os.cpu_count() or 1), 0) if n_workers is None else (n_workers,)
        source = ImageBatches(
            ImageReader(
                images,
                plan.train,
                plan.train_labels,
                training_view(backbone),
                seed=seed,
                processes=processes,
            ),
            plan.batches,
            epochs=settings.epochs,
            teacher=None if teacher is None else torch.from_numpy(teacher[plan.train]),
            n_workers=choices[0],
            unreadable=hooks.unreadable,
        )
        database = sample_positions(plan.n_labelled, VALIDATION_DATABASE, seed=seed)
        validation = Validation(
            images,
            query_rows=plan.held_out,
            query_labels=plan.held_out_labels,
            database_rows=plan.train[database],
            database_labels=plan.train_labels[database],
            hooks=hooks,
            processes=processes,
        )
        part_size = None
        if measure:
            cost = fitting_cost(
                network,
                choices,
                plan.batches.batch_size,
                limit=memory_limit,
                device=device,
                seed=seed,
                processes=processes,
            )
            source = replace(source, n_workers=cost.n_workers)
            smallest = min(processes.gather_objects(cost.part_size))
            # Statistics of a part would differ from those of the batch.
            part_size = smallest if freeze_statistics else None
            validation = replace(validation, batch_size=min(BATCH, smallest))
            n_validated = len(database) + len(plan.held_out) if len(plan.held_out) else 0
            seconds = cost.epoch_seconds(len(plan.train), n_validated // settings.validate_every)
            if on_cost is not None:
                on_cost(cost, seconds / processes.count)
        with closing(source):
            begun = checkpoints is not None and checkpoints.file.exists()
            if init is None and not begun:
                fit_head_start(network, source, processes, part_size)
            history = train_network(
                network,
                plan.loss.to(device),
                source,
                settings.scaled_to_batch_size(plan.batches.batch_size),
                groups=fine_tuning_groups(network.backbone, network.head, settings),
                validate=partial(validation.score, encoder) if len(plan.held_out) else None,
                hooks=hooks,
                checkpoints=checkpoints and checkpoints.for_run(identity),
                processes=processes,
                part_size=part_size,
            )
    network.eval()
    return encoder, history


def fitting_cost(
    network: HashingNetwork,
    worker_choices: Sequence[int],
    batch_size: int,
    *,
    limit: float | None,
    device: str,
    seed: int,
    processes: Processes,
) -> StepCost:
    """Measure a step with the first number of workers that fits in the limit."""
    assert isinstance(network.backbone, PhotoBackbone)
    with seeded(seed):
        cost = measure_step(
            network.eval(),
            network.backbone.view.crop,
            -(-batch_size // processes.count),
            limit=limit,
            n_workers=worker_choices[0],
            device=device,
            n_processes=processes.count,
        )
    for n_workers in worker_choices:
        cost = replace(cost, n_workers=n_workers)
        # All processes must agree, or some would wait for the others.
        if all(processes.gather_objects(cost.part_size >= 2)):
            return cost
    cost.check()
    return cost


def initial_network(
    backbone: PhotoBackbone, n_bits: int, settings: TrainingSettings, init: Encoder | None
) -> HashingNetwork:
    """Return the backbone with a random head, or with the weights of another run."""
    n_classes = None
    if settings.head == "class-codes":
        n_classes = getattr(init, "head_sizes", {}).get("n_classes")
        if n_classes is None:
            raise InputError(
                "class codes start from a head that was trained on features; train with --tune "
                "head, or choose --head layers"
            )
    network = HashingNetwork(
        backbone, n_bits, hidden=settings.hidden, dropout=settings.dropout, n_classes=n_classes
    )
    if isinstance(init, ImageEncoder):
        if type(init.backbone) is not type(backbone) or (
            init.backbone.arguments != backbone.arguments
        ):
            raise InputError(
                f"the run to start from has the backbone {type(init.backbone).__name__}, but here "
                f"it is {type(backbone).__name__}; train with the same"
            )
        backbone.load_state_dict(init.backbone.state_dict())
    if init is not None:
        copy_head(init.head if isinstance(init, ImageEncoder) else init, network.head)
    return network


@torch.no_grad()
def fit_head_start(
    network: HashingNetwork, source: ImageBatches, processes: Processes, part_size: int | None
) -> None:
    """Fit the new head to the backbone's features of the first batch, in training mode."""
    batch = next(iter(replace(source, n_workers=0)(0)))  # workers would read ahead
    assert isinstance(network.head, FeatureHead)  # class codes come from another run
    device = network.head.center.device
    network.train()
    parts = torch.split(batch.inputs, part_size or len(batch.inputs))
    share: Tensor = torch.cat([network.backbone(part.to(device).float()) for part in parts])
    network.head.fit_start(processes.gather_constant(share))


def training_view(backbone: PhotoBackbone) -> Any:
    view = backbone.view
    return partial(
        read_training_view,
        crop=view.crop,
        keep_shape=view.keep_shape,
        interpolation=view.interpolation,
    )


def sample_positions(n: int, size: int, *, seed: int) -> Int64[np.ndarray, " m"]:
    """Return at most `size` of the positions 0 … n − 1, in order."""
    return np.sort(np.random.default_rng(seed).permutation(n)[:size])


@dataclass(frozen=True, eq=False)
class Validation:
    """Scores an encoder: images held out are queries, some of those that train the database."""

    images: ImageSource
    query_rows: Int64[np.ndarray, " queries"]
    query_labels: Shaped[np.ndarray, "queries *classes"]
    database_rows: Int64[np.ndarray, " database"]
    database_labels: Shaped[np.ndarray, "database *classes"]
    hooks: Hooks
    processes: Processes = SINGLE_PROCESS
    batch_size: int = BATCH

    def score(self, encoder: ImageEncoder) -> float:
        """Return the mean average precision."""
        query_codes, query_labels = self.encode(encoder, self.query_rows, self.query_labels)
        if not len(query_codes):
            raise InputError(
                f"none of the {len(self.query_rows)} training images that were held out for "
                "validation can be read; check the files, or train with --validation 0"
            )
        codes, labels = self.encode(encoder, self.database_rows, self.database_labels)
        return evaluate_codes(query_codes, codes, query_labels, labels, n_bits=encoder.n_bits).map

    def encode(
        self, encoder: ImageEncoder, rows: Int64[np.ndarray, " n"], labels: Labels
    ) -> tuple[Any, Any]:
        """Return codes and labels of the readable rows; every process encodes its share."""
        share = self.processes.share(len(rows))
        encoded = encoder.embed_rows(
            self.images, rows[share], progress=self.stop_between, batch_size=self.batch_size
        )
        for path, reason in encoded.unreadable.items():
            self.hooks.unreadable(path, reason)
        readable = np.isin(rows[share], encoded.rows)
        parts = self.processes.gather_objects((encoded.codes, labels[share][readable]))
        all_codes, all_labels = zip(*parts, strict=True)
        return np.concatenate(all_codes), np.concatenate(all_labels)

    def stop_between(self, done: int, total: int) -> None:
        """Stop without waiting for the rest: validation takes minutes, and its epoch is saved."""
        stop = self.hooks.stopping() and not self.hooks.finishing()
        if self.processes.count == 1 and stop:
            raise Interrupted
