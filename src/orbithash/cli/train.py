"""`orbithash train`: an encoder from labelled images or features."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from orbithash.cli.sources import holds_features
from orbithash.cli.training_job import Job, carry_out, folder_of_run
from orbithash.cli.training_settings import (
    chosen_settings,
    hidden_of,
    method_options,
    settings_from,
)
from orbithash.errors import InputError
from orbithash.files import unfinished

if TYPE_CHECKING:
    from orbithash.training import Trained


def train(
    source: Annotated[
        str,
        typer.Argument(
            help="Images (folder of class folders, .csv, .parquet, NAME:FOLDER) or features (.npz)."
        ),
    ],
    bits: Annotated[int, typer.Option(help="Length of the codes, 4 to 1024.")],
    out: Annotated[Path, typer.Option(help="Folder for the run.")],
    method: Annotated[
        str, typer.Option(help="A loss or a hasher; see: orbithash list.")
    ] = "order-aware",
    backbone: Annotated[
        str | None,
        typer.Option(
            help="Network to fine-tune on images; see: orbithash list. With --init of a run on "
            "images: that run's."
        ),
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
        Path | None,
        typer.Option(
            help="Run to start from, as for hard negatives after triplets; on images also one on "
            "features of the same network, for its head."
        ),
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
    learning_rate: Annotated[
        float | None, typer.Option(help="Learning rate before it falls.")
    ] = None,
    hidden: Annotated[
        int | None,
        typer.Option(
            help="Units between the features and the bits, 0 for a linear head. If not given: as "
            "the run of --init has them, else 1024 on features and 0 on images."
        ),
    ] = None,
    memory: Annotated[
        int | None, typer.Option(help="Recent embeddings that lengthen the rank lists.")
    ] = None,
    validation: Annotated[
        float | None,
        typer.Option(
            help="Share of the training images held out to choose the best epoch; 0: the last."
        ),
    ] = None,
    validate_every: Annotated[
        int | None, typer.Option(help="Epochs from one validation to the next.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="float32, or bfloat16 for mixed precision where it works.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Where a network trains on images: cpu (if not given), cuda.")
    ] = None,
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

    Queries are never looked at. On images the best epoch is chosen on training images held out; on
    features the last is kept, unless --validation holds some out. A run that was stopped, however
    it was, goes on with the same command and --resume.
    """
    check_apart(tensorboard, out)
    if resume and is_finished(out):
        print(f"{out} is finished already.")
        return
    options = method_options(option or [])
    if margin is not None:
        options["margin"] = margin
    from_file: dict[str, Any] = {}
    if settings_file is not None:
        from_file, their_options = settings_from(settings_file, method, bits)
        options = their_options | options
    if init is not None and hidden is None:
        hidden = hidden_of(init)
    settings = chosen_settings(
        preset,
        from_file,
        on_images=not holds_features(source),
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        hidden=hidden,
        memory=memory,
        validation=validation,
        validate_every=validate_every,
        precision=precision,
    )
    job = Job(
        source=source,
        method=method,
        n_bits=bits,
        preset=preset,
        settings=settings,
        options=options,
        seed=seed,
        init=init,
        backbone=backbone,
        weights=weights,
        device=device,
        n_workers=workers,
    )
    from orbithash.training import joined_processes

    with joined_processes() as processes:
        console = Console(quiet=not processes.first)
        with folder_of_run(out, processes, resume=resume, force=force) as folder:
            trained, n_unreadable = carry_out(
                job,
                folder,
                processes,
                console,
                checkpoint_every=checkpoint_every,
                tensorboard=tensorboard,
            )
        if processes.first:
            tell(console, trained, n_unreadable, source, out)


def check_apart(tensorboard: Path | None, out: Path) -> None:
    """Raise if TensorBoard's log would lie in the folder that is put in its place at the end."""
    if tensorboard is None:
        return
    for folder in (out.resolve(), unfinished(out.resolve())):
        if tensorboard.resolve().is_relative_to(folder):
            raise InputError(
                f"--tensorboard {tensorboard} lies inside of --out, which is written when the run "
                "is over; give a folder beside it"
            )


def is_finished(out: Path) -> bool:
    from orbithash.encoders.runs.run_folder import RECORD

    return (out / RECORD).exists() and not unfinished(out).exists()


def tell(
    console: Console, trained: "Trained[Any]", n_unreadable: int, source: str, out: Path
) -> None:
    from orbithash.encoders.runs.run_folder import UNREADABLE

    console.print(summary(trained))
    if n_unreadable:
        console.print(f"{n_unreadable} images could not be read, listed in:")
        print(f"  {out / UNREADABLE}")
    console.print("Next, score it:", style="bold")
    print(f"  orbithash evaluate {out} {source} --out {out}-report")


def summary(trained: "Trained[Any]") -> str:
    best = trained.best_epoch()
    if best is None:
        return f"Fitted in {trained.seconds:.1f} s."
    done = f"{len(trained.history)} epochs in {trained.seconds:.1f} s"
    if best.validation_map is None:
        return f"{done}; kept the last."
    return f"{done}; kept epoch {best.number + 1}, validation MAP {best.validation_map:.4f}."
