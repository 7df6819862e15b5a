"""The training of one run: its stages one after another, on features or through the network."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from orbithash.data import ImageFiles, LabelledFeatures, open_source, read_features
from orbithash.encoders import FeatureEncoder, ImageEncoder
from orbithash.errors import InputError
from orbithash.evaluation import mean_average_precision
from orbithash.experiments.plan import Run, Stage
from orbithash.experiments.sources import FineTuning, Source
from orbithash.networks import load_photo_backbone
from orbithash.training import (
    PRESETS,
    Checkpoints,
    Epoch,
    Trained,
    seeded,
    train_on_features,
    train_on_images,
)
from orbithash.training.allocation import keep_freed_memory

Data = LabelledFeatures | ImageFiles
Encoder = FeatureEncoder | ImageEncoder

read_once = lru_cache(maxsize=4)(read_features)  # for the many runs on the same features


def open_data(source: Source, *, fine_tuned: bool) -> Data:
    """The images of a source, or their features."""
    if fine_tuned:
        assert source.fine_tuning is not None
        opened = open_source(source.fine_tuning.place)
        assert isinstance(opened, ImageFiles)
        return opened
    assert source.file is not None
    return read_once(source.file)


def learn(
    run: Run,
    data: Data,
    *,
    checkpoints: Path,
    log: Callable[[Epoch], None] = lambda epoch: None,
    after_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> Trained[Encoder]:
    """The stages one after another, as one training: epochs are numbered through.

    A network that is trained whole keeps its state in the folder `checkpoints`, one file for each
    stage, and goes on from there; heads on features are done before that would pay.
    """
    encoder: Encoder | None = None
    history: list[Epoch] = []
    seconds = 0.0

    def tell(epoch: Epoch) -> None:
        history.append(replace(epoch, number=len(history)))
        log(history[-1])
        after_epoch(history[-1])

    for number, stage in enumerate(run.stages):
        common: dict[str, Any] = {
            "score": mean_average_precision,
            "options": stage.options,
            "init": encoder,
            "seed": run.seed,
            "after_epoch": tell,
        }
        trained: Trained[Encoder]
        if isinstance(data, ImageFiles):
            assert run.source.fine_tuning is not None
            checkpoints.mkdir(parents=True, exist_ok=True)
            kept = Checkpoints(checkpoints / f"stage-{number}.safetensors")
            trained = fine_tune(
                run, stage, data, run.source.fine_tuning, checkpoints=kept, **common
            )
        else:
            settings = stage.settings or PRESETS[run.preset]
            trained = train_on_features(data, stage.method, run.n_bits, settings, **common)
        encoder, seconds = trained.encoder, seconds + trained.seconds
    # Only the last stage's epochs could be kept.
    last = history[len(history) - len(trained.history) :]
    return replace(trained, history=tuple(last), seconds=seconds)


def fine_tune(
    run: Run, stage: Stage, images: ImageFiles, fine_tuning: FineTuning, **common: Any
) -> Trained[ImageEncoder]:
    if stage.settings is None:
        raise InputError(f"{stage.method} is fitted to features; it cannot train a network")
    keep_freed_memory()
    network = fine_tuning.network
    with seeded(run.seed):  # what begins from scratch
        backbone = load_photo_backbone(network.backbone, network.weights, to_train=True)
    return train_on_images(images, backbone, stage.method, run.n_bits, stage.settings, **common)
