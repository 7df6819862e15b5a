"""`orbithash train`: an encoder from labelled images or features."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from orbithash.cli.output import resumable_folder, unfinished
from orbithash.cli.sources import holds_features, image_files
from orbithash.cli.training_progress import fitting_progress, training_progress
from orbithash.cli.training_settings import chosen_settings, method_options, settings_from
from orbithash.errors import InputError

if TYPE_CHECKING:
    from orbithash.training import Trained


def train(
    source: Annotated[
        str,
        typer.Argument(
            help="Images (folder of class folders, .csv, NAME:FOLDER) or features (.npz)."
        ),
    ],
    bits: Annotated[int, typer.Option(help="Length of the codes, 4 to 1024.")],
    out: Annotated[Path, typer.Option(help="Folder for the run.")],
    method: Annotated[
        str, typer.Option(help="A loss or a hasher; see: orbithash list.")
    ] = "order-aware",
    backbone: Annotated[
        str | None, typer.Option(help="Network to fine-tune on images; see: orbithash list.")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="The network's weights to begin with, a safetensors file.")
    ] = None,
    preset: Annotated[
        str, typer.Option(help="Settings to begin with: default, or paper for the paper's recipe.")
    ] = "default",
    settings_file: Annotated[
        Path | None,
        typer.Option("--settings", help="Settings to use where none are given, as tune writes."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides everything random.")] = 0,
    init: Annotated[
        Path | None, typer.Option(help="Run to start from, as for hard negatives after triplets.")
    ] = None,
    margin: Annotated[
        float | None, typer.Option(help="By how many bits negatives should be farther.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help="Any option of the loss or hasher, as NAME=VALUE; may be repeated."),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training images.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images per step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Rate of the first step.")] = None,
    hidden: Annotated[
        int | None, typer.Option(help="Units of the hidden layer on features; 0 for a linear head.")
    ] = None,
    memory: Annotated[
        int | None, typer.Option(help="Recent embeddings that lengthen the rank lists.")
    ] = None,
    validation: Annotated[
        float | None,
        typer.Option(
            help="Share of the training images held out to choose the best epoch; 0: none."
        ),
    ] = None,
    validate_every: Annotated[
        int | None, typer.Option(help="Epochs from one validation to the next.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="float32, or bfloat16 for mixed precision where it works.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where a network trains: cpu, cuda, …")] = "cpu",
    workers: Annotated[
        int | None, typer.Option(min=0, help="Processes that read images; one per core at most 4.")
    ] = None,
    checkpoint_every: Annotated[
        float, typer.Option(min=0, help="Seconds from one checkpoint to the next.")
    ] = 60.0,
    tensorboard: Annotated[
        Path | None, typer.Option(help="Folder for TensorBoard's log; needs the extra tensorboard.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a stopped run.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier run.")] = False,
) -> None:
    """Learn binary codes from labelled images or features, and save the encoder.

    Queries are never looked at: the best epoch is chosen on training images held out. A run that
    was stopped, however it was, goes on with the same command and --resume.
    """
    from orbithash.encoders.run_folder import (  # --help must not wait for torch
        CHECKPOINT,
        CONTENTS,
        LOG,
        UNREADABLE,
        RunRecord,
        load,
        versions,
        write_run,
    )

    on_images = not holds_features(source)
    options = method_options(option or [])
    if margin is not None:
        options["margin"] = margin
    from_file: dict[str, Any] = {}
    if settings_file is not None:
        from_file, their_options = settings_from(settings_file, method, bits)
        options = their_options | options
    settings = chosen_settings(
        preset,
        from_file,
        on_images=on_images,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        hidden=hidden,
        memory=memory,
        validation=validation,
        validate_every=validate_every,
        precision=precision,
    )
    if resume and out.exists() and not unfinished(out).exists():
        print(f"{out} is finished already.")
        return
    with ExitStack() as stack:
        from orbithash.losses import LOSSES
        from orbithash.training import (
            Checkpoints,
            Interrupted,
            interruption,
            joined_processes,
            log_to,
        )
        from orbithash.training.tensorboard import tensorboard_to
        from orbithash.training.unreadable import UnreadableList

        processes = stack.enter_context(joined_processes())
        console = Console(quiet=not processes.first)
        folder = unfinished(out.absolute())
        if processes.first:
            stack.enter_context(
                resumable_folder(
                    out, contents=CONTENTS, checkpoint=CHECKPOINT, resume=resume, force=force
                )
            )
        processes.wait()
        unreadable = UnreadableList(folder / UNREADABLE)
        progress = training_progress if method in LOSSES else fitting_progress
        shown = stack.enter_context(progress(console, method, settings.epochs))
        stopping = stack.enter_context(interruption())
        watchers = [log_to(folder / LOG)] if processes.first else []
        if processes.first and tensorboard is not None:
            watchers.append(tensorboard_to(tensorboard))
        common: dict[str, Any] = {
            "options": options,
            "init": load(init) if init is not None else None,
            "seed": seed,
            "after_epoch": both(*watchers, shown.epoch),
            "after_step": shown.step,
            "checkpoints": Checkpoints(
                folder / CHECKPOINT, every=checkpoint_every, processes=processes
            ),
            "stopping": stopping,
            "processes": processes,
        }
        try:
            if on_images:
                trained = fine_tune(
                    source,
                    backbone,
                    weights,
                    method,
                    bits,
                    settings,
                    n_workers=workers,
                    device=device,
                    unreadable=unreadable,
                    **common,
                )
            else:
                trained = train_head(source, method, bits, settings, **common)
        except Interrupted:
            console.print("Stopped. To go on, give the same command with --resume.")
            raise
        if not processes.first:
            return
        record = RunRecord(
            method=method,
            n_bits=bits,
            seed=seed,
            preset=preset,
            settings=asdict(settings),
            options=options,
            source=str(source),
            init=None if init is None else str(init),
            versions=versions(),
            backbone=backbone,
            weights=None if weights is None else str(weights),
        )
        write_run(folder, trained.encoder, record, trained.outcome())
    console.print(summary(trained))
    if unreadable.reasons:
        console.print(f"{len(unreadable.reasons)} images could not be read, listed in:")
        print(f"  {out / UNREADABLE}")
    console.print("Next, score it:", style="bold")
    print(f"  orbithash evaluate {out} {source} --out {out}-report")


def train_head(source: str, *arguments: Any, **options: Any) -> "Trained[Any]":
    from orbithash.data import read_features
    from orbithash.encoders import FeatureEncoder
    from orbithash.evaluation import mean_average_precision
    from orbithash.training import train_on_features

    if not isinstance(options["init"], FeatureEncoder | None):
        raise InputError("the run to start from encodes images, not features; give another")
    data = read_features(Path(source))
    return train_on_features(data, *arguments, score=mean_average_precision, **options)


def fine_tune(
    source: str, backbone: str | None, weights: Path | None, *arguments: Any, **options: Any
) -> "Trained[Any]":
    from orbithash.encoders import ImageEncoder
    from orbithash.evaluation import mean_average_precision
    from orbithash.networks import load_photo_backbone
    from orbithash.training import seeded, train_on_images
    from orbithash.training.allocation import keep_freed_memory

    if backbone is None:
        raise InputError(
            f"{source} is not a features file; give --backbone to fine-tune a network on its "
            f"images, or make features with: orbithash features {source} --backbone NAME "
            "--weights FILE --out FEATURES.npz"
        )
    if not isinstance(options["init"], ImageEncoder | None):
        raise InputError("the run to start from encodes features, not images; give another")
    images = image_files(source)
    keep_freed_memory()
    with seeded(options["seed"]):  # what begins from scratch
        network = load_photo_backbone(backbone, weights, to_train=True)
    return train_on_images(images, network, *arguments, score=mean_average_precision, **options)


def summary(trained: "Trained[Any]") -> str:
    best = trained.best_epoch()
    if best is None:
        return f"Fitted in {trained.seconds:.1f} s."
    done = f"{len(trained.history)} epochs in {trained.seconds:.1f} s"
    if best.validation_map is None:
        return f"{done}; kept the last."
    return f"{done}; kept epoch {best.number + 1}, validation MAP {best.validation_map:.4f}."


def both(*functions: Callable[[Any], None]) -> Callable[[Any], None]:
    def call(value: Any) -> None:
        for function in functions:
            function(value)

    return call
