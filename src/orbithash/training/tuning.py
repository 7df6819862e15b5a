"""Training on images: how much of the network learns, and the stages of each way.

head    the backbone stays as it is; its features are computed once, and a head trains on them
whole   all of the network learns, from a head that was trained first
"""

import copy
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from orbithash.data import (
    ImageDataset,
    ImageFiles,
    ImageSource,
    LabelledFeatures,
    training_rows,
)
from orbithash.encoders import Encoder, Epoch, ImageEncoder
from orbithash.encoders.runs.fingerprints import check_features_by, parsed
from orbithash.encoders.runs.run_folder import CHECKPOINT, FEATURES, HEAD_CHECKPOINT
from orbithash.errors import InputError
from orbithash.files import partial_folder
from orbithash.networks import PhotoBackbone, load_photo_backbone
from orbithash.training.checkpoint import read_header
from orbithash.training.machine.environment import seeded
from orbithash.training.machine.memory import StepCost
from orbithash.training.methods import Method
from orbithash.training.on_arrays import predict_head_seconds
from orbithash.training.on_backbone import (
    N_VIEWS,
    frozen_features,
    predict_seconds,
    teacher_vectors,
    train_head,
)
from orbithash.training.on_images import train_on_images
from orbithash.training.session import TrainingSession
from orbithash.training.settings import TrainingSettings, resolve_settings
from orbithash.training.time_left import FEATURES as FEATURES_STAGE
from orbithash.training.time_left import about

TUNES = ("head", "whole")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tuning:
    """How a network is trained on images."""

    tune: str  # "head" or "whole"
    head_settings: TrainingSettings | None = None  # of the head; None: no head is trained
    whole_settings: TrainingSettings | None = None  # of the whole network
    n_views: int = N_VIEWS
    pretrained: bool = True  # whether the backbone starts from trained weights
    begun_before: bool = False  # by a version that measured no memory and froze no statistics
    memory_limit: float | None = None  # gigabytes


def initial_backbone(
    backbone: str | PhotoBackbone | None,
    weights: str | Path | None,
    init: Encoder | None,
    source: str,
    *,
    seed: int,
) -> tuple[PhotoBackbone, str]:
    """Return the network to fine-tune and its name: of the run to start from, or as named."""
    if isinstance(init, ImageEncoder):
        return backbone_of_run(init, backbone, weights)
    if backbone is None:
        raise InputError(
            f"{source} holds images; give --backbone, the network that describes them "
            "(orbithash list shows all; efficientnet-lite0 is installed by pip)"
        )
    if isinstance(backbone, PhotoBackbone):
        return copy.deepcopy(backbone), backbone.registry_name()
    with seeded(seed):  # for a backbone that starts from random weights
        network = load_photo_backbone(
            backbone, None if weights is None else Path(weights), to_train=True
        )
    if init is not None:
        check_features_by(init.training, network)
    return network, backbone


def backbone_of_run(
    init: ImageEncoder, backbone: str | PhotoBackbone | None, weights: str | Path | None
) -> tuple[PhotoBackbone, str]:
    if weights is not None:
        raise InputError("--init begins with the weights of its run; leave --weights out")
    network = init.backbone
    recorded = init.training.record.backbone if init.training else None
    name = recorded or network.registry_name()
    if backbone not in (None, name):
        raise InputError(
            f"the run to start from has the backbone {name}, not {backbone}; leave --backbone out"
        )
    return copy.deepcopy(network), name


def plan_tuning(
    backbone: PhotoBackbone,
    name: str,
    method: Method,
    *,
    tune: str | None,
    n_views: int | None,
    memory_limit: float | None,
    weights: str | Path | None,
    init: Encoder | None,
    resumed: Path | None,
    preset: str,
    settings: TrainingSettings | Mapping[str, Any],
    changes: Mapping[str, Any],
) -> Tuning:
    """Choose how much of the network learns, and the settings of each stage."""
    if n_views is not None and n_views < 0:
        raise InputError(f"views is {n_views}; give a whole number from 0 on")
    if memory_limit is not None and not memory_limit > 0:
        raise InputError(f"the memory limit is {memory_limit} GB; give a number above 0")
    old = begun_before(resumed)
    pretrained = weights is not None or not backbone.from_scratch or isinstance(init, ImageEncoder)
    if old:
        tune = "whole"
    tune = choose_tune(tune, name, pretrained=pretrained, preset=preset, init=init)
    if n_views is not None and not method.is_loss:
        logger.warning("%s is fitted to one view of each image; views are not used", method.name)
    plan = Tuning(
        tune,
        n_views=(N_VIEWS if n_views is None else n_views) if method.is_loss else 0,
        pretrained=pretrained,
        begun_before=old,
        memory_limit=memory_limit,
    )
    if tune == "head":
        head = resolve_settings(preset, settings, changes, on_images=False, init=init)
        return replace(plan, head_settings=head)
    if not method.is_loss:
        raise InputError(
            f"{method.name} is fitted to features and cannot train a network; use --tune head"
        )
    whole = resolve_settings(preset, settings, changes, on_images=True, init=init)
    if whole.head == "two-paths":  # the default of settings that were not made for images
        if changes.get("head") is not None:
            raise InputError(
                "the second path is fitted to features that do not change; train with --tune head, "
                "or leave --head out"
            )
        whole = replace(whole, head="layers")
    if method.needs_teacher(whole) and not pretrained:
        raise InputError(
            f"{'--look' if whole.look else method.name} learns from the backbone's features, and "
            f"{name} has no trained weights; give another backbone, or weights, or learn from "
            "labels alone"
        )
    if isinstance(settings, TrainingSettings) or preset != "default":
        return replace(plan, whole_settings=whole)
    if old or init is not None or not pretrained:
        return replace(plan, whole_settings=whole)
    # The head has the same shape and terms in both stages; other changes are meant for the whole
    # network.
    given = {**settings, **{key: value for key, value in changes.items() if value is not None}}
    kept = {"head", "hidden", "dropout", "look"}
    shape = {key: value for key, value in given.items() if key in kept}
    head = resolve_settings("default", {"head": whole.head}, shape, on_images=False)
    whole = replace(whole, head=head.head, hidden=head.hidden, dropout=head.dropout)
    return replace(plan, head_settings=head, whole_settings=whole)


def choose_tune(
    tune: str | None, backbone: str, *, pretrained: bool, preset: str, init: Encoder | None
) -> str:
    """Return the way to train; by default a head, if the backbone has trained weights."""
    if tune is not None and tune not in TUNES:
        raise InputError(f"there is no tune {tune!r}; choose from {', '.join(TUNES)}")
    if tune == "head" and not pretrained:
        raise InputError(f"{backbone} has no trained weights to keep; train with --tune whole")
    if tune is not None:
        return tune
    if isinstance(init, ImageEncoder):
        return (init.training.record.tune if init.training else None) or "whole"
    return "whole" if preset == "paper" or not pretrained else "head"


def begun_before(out: Path | None) -> bool:
    """Whether an unfinished run was started by a version that knew only whole networks."""
    checkpoint = partial_folder(out) / CHECKPOINT if out is not None else None
    if checkpoint is None or not checkpoint.exists():
        return False
    begun = parsed(read_header(checkpoint)["made_with"])
    return "images" in begun and "tune" not in begun


def train_by_tuning(
    images: ImageSource,
    backbone: PhotoBackbone,
    method: Method,
    n_bits: int,
    tuning: Tuning,
    session: TrainingSession,
    *,
    digest: str,
    init: Encoder | None,
    seed: int,
    n_workers: int | None,
    device: str,
) -> tuple[ImageEncoder, list[Epoch]]:
    """Run the stages: the head, the whole network, or one after the other."""
    head_first = tuning.head_settings is not None and tuning.whole_settings is not None
    cache = session.folder / FEATURES if session.folder else None
    encoder: Encoder | None = init
    last = tuning.whole_settings or tuning.head_settings
    assert last is not None
    of_head = with_validation(images, last.validation, seed=seed) if method.is_loss else images
    if tuning.head_settings is not None:
        announce_head(of_head, backbone, method, n_bits, tuning, session, seed=seed)
        # A finished head is restored from its checkpoint, which is checked against the settings.
        encoder, history = train_head(
            of_head,
            backbone.to(device),
            method,
            n_bits,
            tuning.head_settings,
            n_views=tuning.n_views,
            cache=cache,
            init=init,
            seed=seed,
            hooks=session.hooks("head", tuning.head_settings.epochs, last_stage=not head_first),
            checkpoints=session.checkpoints(HEAD_CHECKPOINT if head_first else CHECKPOINT),
            processes=session.processes,
        )
        if tuning.whole_settings is None:
            return encoder, history
    assert tuning.whole_settings is not None
    settings = tuning.whole_settings
    teacher = None
    if method.needs_teacher(settings):
        # The head's features, if they were kept; of other views, none are needed.
        n_views = tuning.n_views if head_first and cache else 0
        hooks = session.hooks(FEATURES_STAGE, 0, last_stage=False)
        features = frozen_features(
            of_head, backbone.to(device), cache, n_views, hooks, session.processes
        )
        teacher = teacher_vectors(images, features)

    def announce(cost: StepCost, epoch_seconds: float) -> None:
        total = settings.epochs * epoch_seconds
        session.left.add("whole", settings.epochs, total, unit="epochs")
        if session.resumed:
            session.announce("Resuming the training of the whole network.")
            return
        parts = f", batches of {cost.batch_size} in parts of {cost.part_size}"
        numbers = described(images, method, settings, seed=seed)
        session.announce(
            f"{numbers}. Training the whole network: about {about(epoch_seconds)} per "
            f"epoch, {about(total)} for {settings.epochs} epochs; memory about "
            f"{cost.gigabytes:.1f} GB (--memory-limit){parts if cost.in_parts else ''}."
        )

    return train_on_images(
        images,
        backbone,
        method,
        n_bits,
        settings,
        digest=digest,
        init=encoder,
        teacher=teacher,
        seed=seed,
        n_workers=n_workers,
        device=device,
        freeze_statistics=tuning.pretrained and not tuning.begun_before,
        measure=not tuning.begun_before,
        memory_limit=tuning.memory_limit,
        on_cost=announce,
        hooks=session.hooks("whole", settings.epochs),
        checkpoints=session.checkpoints(),
        processes=session.processes,
    )


def with_validation(images: ImageSource, fraction: float, *, seed: int) -> ImageSource:
    """Choose the held-out images before unreadable ones are known: every stage holds out these."""
    train, held_out = training_rows(images.labels, images.split, fraction, seed=seed)
    assert isinstance(images, ImageFiles | ImageDataset)
    return replace(images, split=replace(images.split, train=train, validation=held_out))


def announce_head(
    images: ImageSource,
    backbone: PhotoBackbone,
    method: Method,
    n_bits: int,
    tuning: Tuning,
    session: TrainingSession,
    *,
    seed: int,
) -> None:
    """Print what will happen and how long it will take; the time is measured on a few images."""
    if session.console.quiet:
        return
    settings = tuning.head_settings
    assert settings is not None
    of_features, of_head = predict_seconds(
        images, backbone, method, n_bits, settings, n_views=tuning.n_views, seed=seed
    )
    n_images = len(images.split.validation) + len(images.split.learned) * (1 + tuning.n_views)
    session.left.add(FEATURES_STAGE, n_images, of_features, unit="images")
    if method.is_loss:
        session.left.add("head", settings.epochs, of_head, unit="epochs")
    what = "a head" if method.is_loss else method.name
    if session.resumed:
        session.announce(f"Resuming the training of {what} on the backbone's features.")
        return
    numbers = described(images, method, settings, seed=seed)
    views = f"{1 + tuning.n_views} views of each" if tuning.n_views else "each image"
    then = " first; the whole network follows" if tuning.whole_settings is not None else ""
    session.announce(
        f"{numbers}. Training {what} on the backbone's features of {views}{then}: about "
        f"{about(of_features + of_head)}."
    )


def announce_features(
    data: LabelledFeatures,
    method: Method,
    n_bits: int,
    settings: TrainingSettings,
    session: TrainingSession,
    *,
    seed: int,
) -> None:
    """Print what will happen on features, and how long it will take."""
    if session.console.quiet or data.features.ndim != 2:
        return
    seconds = predict_head_seconds(
        data, data.features.shape[1], method, n_bits, settings, seed=seed
    )
    numbers = described(data, method, settings, seed=seed)
    session.left.add(method.name, settings.epochs, seconds, unit="epochs")
    session.announce(f"{numbers}. Training a head on the features: about {about(seconds)}.")


def described(
    data: ImageSource | LabelledFeatures,
    method: Method,
    settings: TrainingSettings,
    *,
    seed: int,
) -> str:
    """Return the numbers of images and classes in words."""
    split, labels = data.split, data.labels
    train, held_out = training_rows(labels, split, settings.validation, seed=seed)
    numbers = {"for training": train, "held out": held_out, "queries": split.query}
    numbers |= {"without labels": split.unlabelled}
    parts = [f"{len(rows):,} {what}" for what, rows in numbers.items() if len(rows)]
    n_classes = labels.shape[1] if labels.ndim == 2 else len(np.unique(labels))
    classes = f"{n_classes:,} classes" if method.from_labels else "without labels"
    return f"{len(data):,} images, {classes}: {', '.join(parts)}"
