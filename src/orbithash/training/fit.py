"""Training from start to end: open the source, train by any method, save the run.

`orbithash.train`, `orbithash train`, the tables, `tune` and the demo all call `train`.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from orbithash.codes import check_n_bits
from orbithash.data import (
    ImageSource,
    LabelledFeatures,
    open_source,
    open_without_labels,
    with_unlabelled,
)
from orbithash.data.classes import choose_held_out, without_classes
from orbithash.encoders import Encoder, Epoch, RunRecord, Training, load_run
from orbithash.encoders.runs.estimators import check_can_be_saved
from orbithash.encoders.runs.fingerprints import data_digest, recorded_weights
from orbithash.encoders.runs.record import package_versions
from orbithash.encoders.runs.run_folder import is_finished
from orbithash.errors import InputError
from orbithash.hashers import Hasher
from orbithash.losses import LookLoss
from orbithash.networks import PhotoBackbone
from orbithash.networks.backbones import check_device
from orbithash.training.hooks import Hooks, finishing_hooks
from orbithash.training.methods import (
    Method,
    as_method,
    nested_weights,
    with_nested,
    without_labels,
)
from orbithash.training.on_arrays import fit_hasher, train_on_arrays
from orbithash.training.session import (
    check_begun,
    check_same_data,
    check_tensorboard,
    finished_run,
    shortened,
    training_session,
    warn_of_seen_before,
)
from orbithash.training.settings import TrainingSettings, read_settings, resolve_settings
from orbithash.training.tuning import (
    announce_features,
    initial_backbone,
    plan_tuning,
    train_by_tuning,
)


def train(
    source: Any,
    bits: int,
    *,
    method: str | nn.Module | Hasher = "order-aware",
    options: Mapping[str, Any] | None = None,
    nested: Sequence[int] = (),
    labels: str = "source",
    unlabelled: Any = None,
    hold_out_classes: float | Sequence[str | int] | None = None,
    backbone: str | PhotoBackbone | None = None,
    weights: str | Path | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    preset: str = "default",
    settings: TrainingSettings | Mapping[str, Any] | str | Path | None = None,
    init: str | Path | Encoder | None = None,
    tune: str | None = None,
    views: int | None = None,
    memory_limit: float | None = None,
    stop_after: float | None = None,
    finish: bool = False,
    seed: int = 0,
    device: str | None = None,
    workers: int | None = None,
    checkpoint_every: float = 60.0,
    tensorboard: str | Path | None = None,
    hooks: Hooks | None = None,
    progress: bool | None = None,
    **changes: Any,
) -> Encoder:
    """Learn binary codes from images or features, with labels or without, and return the encoder.

    Args:
        source: A folder of class folders, a table, a features file or `name:folder` of a
            benchmark; or `(features, labels)`, or a torch Dataset of (image, label).
        bits: The length of the codes, 4 to 1024.
        method: The name of a loss or hasher, a loss, or a hasher.
        options: Arguments of a method that is given by name.
        nested: Shorter lengths, such as (16, 32): the first bits of the codes become good codes
            of these lengths too, which `encoder.prefix(16)` gives.
        labels: "source", or "none": labels are ignored and may be missing. The codes then keep
            which images look alike, by the backbone's features; a hasher must need no labels. The
            source may also be features alone, or a folder with images in any nesting.
        unlabelled: A source of further images, or features, without labels. They take part in the
            term by the look alone, so `look` must be above 0. They are a fifth of each batch.
        hold_out_classes: A share of the classes, such as 0.5, drawn by the seed, or their names or
            numbers. Their images do not train, and `evaluate` scores the codes of both parts: how
            well they serve classes that nobody trained on.
        backbone: The network whose features of the images are encoded.
        weights: The backbone's initial weights, a safetensors file.
        out: The folder for the run, with its log and checkpoints; without it nothing is written.
        resume: Continue a stopped run, or load a finished one.
        force: Replace an earlier run.
        preset: The settings to start from, `default` or `paper`.
        settings: All settings, or a file of them that `orbithash tune` wrote.
        init: A run or encoder to start from.
        tune: How much of the network learns from images: `head`, the default for a backbone with
            trained weights, or `whole`, which starts from a head trained first, unless the preset
            is `paper` or all settings are given.
        views: Further views of each training image that train the head; default 4.
        memory_limit: Gigabytes that `whole` may take; default half of what is free.
        stop_after: Minutes after which the best epoch so far is kept as the finished run.
        finish: Keep the best epoch so far of an unfinished run as the finished run.
        seed: Determines everything random.
        device: Where a network trains on images, such as "cuda"; default "cpu".
        workers: Processes that read images; default one per core, at most 4.
        checkpoint_every: Seconds between checkpoints.
        tensorboard: A folder for TensorBoard's log.
        hooks: Functions to call after each step and epoch.
        progress: Show a progress bar; by default in a terminal.
        changes: Fields of `TrainingSettings`, such as `epochs=20`.
    """
    out = None if out is None else Path(out)
    check_n_bits(bits)
    bits, seed = int(bits), int(seed)  # numpy's integers cannot be written as JSON
    check_tensorboard(tensorboard, out)
    if seed < 0:
        raise InputError(f"got seed={seed}; give a whole number from 0 on")
    chosen, file_settings = method_and_settings(method, options, settings, bits)
    chosen = with_nested(chosen, nested, bits)
    if check_labels(labels, unlabelled, hold_out_classes, changes) == "none":
        chosen, changes = without_labels(chosen), {**changes, "validation": 0.0, "look": 0.0}
    opened = open_source if chosen.from_labels else open_without_labels
    if finish:
        check_begun(out)
    if out is not None and (resume or finish) and is_finished(out):
        expected = {
            "method": chosen.name,
            "n_bits": bits,
            "seed": seed,
            "tune": tune,
            "nested": ",".join(map(str, chosen.nested)) or "none",
            "held_out_classes": ",".join(held_out_names(source, hold_out_classes, seed)),
            "labels": labels,
            "views": views,
            "preset": preset,
            "options": dict(chosen.options),
            "backbone": backbone if isinstance(backbone, str) else None,
            "weights": None if weights is None else str(weights),
            "init": None if init is None else source_name(init),
            "unlabelled": None if unlabelled is None else source_name(unlabelled),
        }
        from_file = file_settings if isinstance(file_settings, Mapping) else asdict(file_settings)
        run = finished_run(out, expected, {**from_file, **changes})
        if unlabelled is None:
            check_same_data(run, out, source_name(source), lambda: opened(source))
        return run
    if out is not None and isinstance(chosen.given, Hasher):
        check_can_be_saved(chosen.given)
    data = opened(source)
    gpu = None if device == "cpu" else device
    given = {
        "backbone": backbone,
        "weights": weights,
        "device": gpu,
        "workers": workers,
        "tune": tune,
        "views": views,
        "memory-limit": memory_limit,
    }
    check_arguments(data, source, chosen, given)
    check_device(device or "cpu")
    init_encoder = load_run(init) if isinstance(init, str | Path) else init
    network = tuning = None
    name = backbone if isinstance(backbone, str) else None
    if isinstance(data, ImageSource):
        network, name = initial_backbone(
            backbone, weights, init_encoder, source_name(source), seed=seed
        )
        tuning = plan_tuning(
            network,
            name,
            chosen,
            tune=tune,
            n_views=views,
            memory_limit=memory_limit,
            weights=weights,
            init=init_encoder,
            resumed=out if resume or finish else None,
            preset=preset,
            settings=file_settings,
            changes=changes,
        )
        resolved = tuning.whole_settings or tuning.head_settings
    else:
        resolved = resolve_settings(
            preset, file_settings, changes, on_images=False, init=init_encoder
        )
    assert resolved is not None
    if not chosen.is_loss:
        check_for_hasher(chosen, init_encoder, changes)
    held_out = held_out_names(data, hold_out_classes, seed)
    whole, labelled = data, without_classes(data, held_out)
    data = labelled
    if unlabelled is not None:
        check_learns_without_labels(chosen, resolved)
        whole = data = with_unlabelled(labelled, unlabelled)
    digest = data_digest(whole) if out is not None else ""  # only a run that is written needs it
    warn_of_seen_before(held_out, init_encoder)
    record = RunRecord(
        method=chosen.name,
        n_bits=bits,
        seed=seed,
        preset=preset,
        settings=asdict(resolved),
        options=chosen.options,
        nested=nested_weights(chosen, bits),
        source=source_name(source),
        init=None if init is None else source_name(init),
        versions=package_versions(),
        backbone=name,
        tune=tuning.tune if tuning else None,
        views=tuning.n_views if tuning and tuning.head_settings else None,
        weights=None if weights is None else str(weights),
        data_digest=digest or None,
        features_by=recorded_weights(data) if isinstance(data, LabelledFeatures) else None,
        held_out_classes=held_out,
        labels=labels,
        unlabelled=None if unlabelled is None else source_name(unlabelled),
    )
    encoder: Encoder
    history: list[Epoch] = []
    started = time.perf_counter()
    with training_session(
        out,
        finishing_hooks(hooks or Hooks(), stop_after=stop_after, finish=finish),
        catch_signals=chosen.is_loss,
        resume=resume or finish,
        force=force,
        checkpoint_every=checkpoint_every,
        tensorboard=tensorboard,
        progress=sys.stdout.isatty() if progress is None else progress,
        held_out_classes=held_out,
    ) as session:
        if held_out:
            session.announce(f"Held out {len(held_out)} classes: {shortened(held_out)}.")
        if isinstance(data, ImageSource):
            assert network is not None
            assert tuning is not None
            assert isinstance(labelled, ImageSource)
            session.keep_split(labelled, init, validation=resolved.validation, seed=seed)
            encoder, history = train_by_tuning(
                data,
                network,
                chosen,
                bits,
                tuning,
                session,
                digest=digest,
                init=init_encoder,
                seed=seed,
                n_workers=workers,
                device=device or "cpu",
            )
        elif chosen.is_loss:
            announce_features(data, chosen, bits, resolved, session, seed=seed)
            encoder, history = train_on_arrays(
                data,
                chosen,
                bits,
                resolved,
                digest=digest,
                backbone=name,
                init=init_encoder,
                seed=seed,
                hooks=session.hooks(chosen.name, resolved.epochs),
                checkpoints=session.checkpoints(),
                processes=session.processes,
            )
        else:
            with session.spinner(chosen.name):
                encoder = fit_hasher(data, chosen, bits, seed=seed)
        # Summed over epochs: a resumed run spans several calls.
        seconds = sum(epoch.seconds for epoch in history) or time.perf_counter() - started
        encoder.training = Training(record, tuple(history), seconds)
        session.save(encoder)
    return encoder


def check_labels(
    labels: str, unlabelled: Any, hold_out_classes: Any, changes: Mapping[str, Any]
) -> str:
    """Return `labels`; raise if they are "none" and something is given that needs labels."""
    if labels not in ("source", "none"):
        raise InputError(f"labels is {labels!r}; choose source or none")
    needing = {
        "--unlabelled, which adds images to labelled ones,": unlabelled is not None,
        "--hold-out-classes": hold_out_classes is not None,
        "--validation, which scores classes,": changes.get("validation"),
        "--look, a term beside that by labels,": changes.get("look"),
    }
    if labels == "none" and (given := [name for name, value in needing.items() if value]):
        raise InputError(f"{given[0]} needs labels, and --labels is none; leave one of them out")
    return labels


def held_out_names(
    source: Any, wanted: float | Sequence[str | int] | None, seed: int
) -> tuple[str, ...]:
    """Return the names of the classes of a source that are held out."""
    return () if wanted is None else choose_held_out(open_source(source), wanted, seed=seed)


def method_and_settings(
    method: str | nn.Module | Hasher,
    options: Mapping[str, Any] | None,
    settings: TrainingSettings | Mapping[str, Any] | str | Path | None,
    n_bits: int,
) -> tuple[Method, TrainingSettings | Mapping[str, Any]]:
    """Return the method and the settings of a file; given options override those of the file."""
    if settings is None or isinstance(settings, TrainingSettings | Mapping):
        return as_method(method, options), settings or {}
    from_file = read_settings(Path(settings))
    if from_file.method != method:
        raise InputError(
            f"{settings} has settings for {from_file.method}, but the method is {method}; "
            f"add --method {from_file.method}"
        )
    return as_method(method, from_file.options_at(n_bits) | dict(options or {})), from_file.settings


def source_name(source: Any) -> str:
    """Return a path as it was given, and the type of anything else."""
    return str(source) if isinstance(source, str | Path) else type(source).__name__


def check_arguments(
    data: ImageSource | LabelledFeatures,
    source: Any,
    method: Method,
    given: Mapping[str, Any],
) -> None:
    """Raise if an argument or the method does not apply to this kind of source."""
    if isinstance(data, ImageSource):
        return
    small_images = data.features.ndim == 4 and method.is_loss
    names = [name for name, value in given.items() if value is not None]
    for name in names:
        if name != "backbone" or not small_images:
            raise InputError(
                f"--{name} is for images, and {source_name(source)} holds features; leave it out"
            )
    if isinstance(given["backbone"], PhotoBackbone):
        raise InputError("images in memory take a backbone by its name; give small-cnn")


def check_learns_without_labels(method: Method, settings: TrainingSettings) -> None:
    """Raise unless the loss has a term by the look, the only one for images without labels."""
    if not (method.is_loss and settings.look > 0) and not isinstance(method.given, LookLoss):
        raise InputError(
            "--unlabelled adds images to the term by the look, and there is none; give its weight "
            "too, such as --look 0.3, with a loss as the method"
        )


def check_for_hasher(method: Method, init: Encoder | None, changes: Mapping[str, Any]) -> None:
    """Raise if something was given that only losses take."""
    if changes.get("look"):
        raise InputError(
            f"{method.name} is a hasher, and --look adds a term to a loss; leave --look out"
        )
    if init is not None:
        raise InputError(
            f"{method.name} is fitted in a single step and cannot start from another run"
        )
