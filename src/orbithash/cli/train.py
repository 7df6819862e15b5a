"""`orbithash train`: an encoder from labelled images or features."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from orbithash.cli.options import code_lengths
from orbithash.errors import InputError
from orbithash.files import partial_folder

if TYPE_CHECKING:
    from orbithash.encoders import Training

METHOD, NETWORK, TRAINING, RUN = "Method", "Network", "Training", "Run"  # groups of options


def train_command(
    source: Annotated[
        str,
        typer.Argument(
            help="Images (folder of class folders, .csv, .parquet, NAME:FOLDER) or features (.npz)"
            "; with --labels none any folder of images."
        ),
    ],
    bits: Annotated[int, typer.Option(help="Length of the codes, 4 to 1024.")],
    out: Annotated[Path, typer.Option(help="Folder for the run.")],
    backbone: Annotated[
        str | None,
        typer.Option(
            help="Network that describes images; see: orbithash list. Default: as in --init."
        ),
    ] = None,
    method: Annotated[
        str, typer.Option(help="A loss or a hasher; see: orbithash list.")
    ] = "order-aware",
    tune: Annotated[
        str | None,
        typer.Option(
            help="How much of the network learns from images: head (default, minutes) or whole "
            "(hours on a CPU)."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a stopped run.")] = False,
    margin: Annotated[
        float | None,
        typer.Option(
            help="Bits by which negatives should be farther than positives.", rich_help_panel=METHOD
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            help="An option of the loss or hasher, as NAME=VALUE; may be repeated.",
            rich_help_panel=METHOD,
        ),
    ] = None,
    look: Annotated[
        float | None,
        typer.Option(
            help="Weight of a second term that keeps which images look alike, by the features of "
            "the backbone, such as 0.3; default 0.",
            rich_help_panel=METHOD,
        ),
    ] = None,
    labels: Annotated[
        str,
        typer.Option(
            metavar="source|none",
            help="none: ignore labels, which may be missing, and learn which images look alike.",
            rich_help_panel=METHOD,
        ),
    ] = "source",
    unlabelled: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="Further images (or features) without labels, for the term of --look.",
            rich_help_panel=METHOD,
        ),
    ] = None,
    nested: Annotated[
        str | None,
        typer.Option(
            help="Shorter lengths, such as 16,32: the first bits become good codes of these "
            "lengths too, for encode --bits and index --bits.",
            rich_help_panel=METHOD,
        ),
    ] = None,
    hold_out_classes: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE|NAMES",
            help="Classes whose images do not train: a share such as 0.5, drawn by --seed, or "
            "names separated by commas. evaluate then scores seen and unseen classes apart.",
            rich_help_panel=METHOD,
        ),
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(
            help="Size of the memory bank of recent embeddings that lengthens the ranking lists.",
            rich_help_panel=METHOD,
        ),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            help="Initial weights of the backbone, a safetensors file.", rich_help_panel=NETWORK
        ),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(
            help="Between features and bits: two-paths, layers (--hidden) and a path that is "
            "fitted beside them, for the look of images and for new classes; layers alone; or "
            "class-codes, a linear layer beside codes of the classes, for one label per image. "
            "Default: two-paths for a head on features, layers for a whole network.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    hidden: Annotated[
        int | None,
        typer.Option(
            help="Hidden units between features and bits, 0 for a linear head. Default: as in the "
            "run of --init; otherwise 1024, and 0 for a whole network without a head first.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    views: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Further views of each image that train the head: mirrored, then random crops; "
            "default 4.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    init: Annotated[
        Path | None,
        typer.Option(
            help="Run to start from. On images it may also be a run on features of the same "
            "backbone, for its head.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            help="Settings to start from: default, or paper for the paper's recipe.",
            rich_help_panel=TRAINING,
        ),
    ] = "default",
    settings_file: Annotated[
        Path | None,
        typer.Option(
            "--settings",
            help="File of settings that tune wrote; options given here override it.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(help="Passes over the training images.", rich_help_panel=TRAINING),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Images per step.", rich_help_panel=TRAINING)
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Initial learning rate.", rich_help_panel=TRAINING)
    ] = None,
    validation: Annotated[
        float | None,
        typer.Option(
            help="Share of the training images held out to select the epoch; 0 keeps the last.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    validate_every: Annotated[
        int | None, typer.Option(help="Epochs between validations.", rich_help_panel=TRAINING)
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            help="float32, or bfloat16 for mixed precision where the hardware supports it.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.", rich_help_panel=TRAINING)] = 0,
    device: Annotated[
        str | None,
        typer.Option(
            help="Where a network trains on images: cpu (default) or cuda.", rich_help_panel=RUN
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Processes that read images; default one per core, at most 4.",
            rich_help_panel=RUN,
        ),
    ] = None,
    memory_limit: Annotated[
        float | None,
        typer.Option(
            help="Gigabytes that --tune whole may take; default half of what is free.",
            rich_help_panel=RUN,
        ),
    ] = None,
    stop_after: Annotated[
        float | None,
        typer.Option(
            help="Minutes after which the best epoch so far is kept as the finished run.",
            rich_help_panel=RUN,
        ),
    ] = None,
    finish: Annotated[
        bool,
        typer.Option(
            "--finish",
            help="Keep the best epoch so far of a stopped run as the finished run.",
            rich_help_panel=RUN,
        ),
    ] = False,
    checkpoint_every: Annotated[
        float, typer.Option(min=0, help="Seconds between checkpoints.", rich_help_panel=RUN)
    ] = 60.0,
    tensorboard: Annotated[
        Path | None,
        typer.Option(
            help="Folder for TensorBoard's log; needs the extra tensorboard.", rich_help_panel=RUN
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an earlier run.", rich_help_panel=RUN)
    ] = False,
) -> None:
    """Learn binary codes from images or features, and save the encoder.

    Example: orbithash train photos/ --bits 64 --backbone efficientnet-lite0 --out runs/photos

    Queries are never used. A head, on images or features, keeps its last epoch, unless --validation
    holds some images out; a whole network keeps the best epoch on held-out images. Ctrl-C stops,
    and the same command with --resume continues; Ctrl-C twice keeps the best epoch so far.
    """
    # --help must not wait for torch
    from orbithash.encoders.runs.run_folder import CHECKPOINT, is_finished
    from orbithash.training import train
    from orbithash.training.machine.environment import keep_freed_memory

    was_finished = resume and is_finished(out)
    keep_freed_memory()
    console = Console(quiet=is_other_process())
    try:
        encoder = train(
            source,
            bits,
            method=method,
            options=method_options(option or [], margin),
            nested=() if nested is None else code_lengths(nested, "--nested"),
            labels=labels,
            unlabelled=unlabelled,
            hold_out_classes=None if hold_out_classes is None else share_or_names(hold_out_classes),
            backbone=backbone,
            weights=weights,
            out=out,
            resume=resume,
            force=force,
            preset=preset,
            settings=settings_file,
            init=init,
            tune=tune,
            views=views,
            memory_limit=memory_limit,
            stop_after=stop_after,
            finish=finish,
            seed=seed,
            device=device,
            workers=workers,
            checkpoint_every=checkpoint_every,
            tensorboard=tensorboard,
            progress=True,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            head=head,
            hidden=hidden,
            memory=memory,
            look=look,
            validation=validation,
            validate_every=validate_every,
            precision=precision,
        )
    except KeyboardInterrupt:
        if partial_folder(out).exists():
            console.print("Stopped. To continue, repeat the command with --resume.")
        if (partial_folder(out) / CHECKPOINT).exists():
            console.print("With --finish instead, it keeps the best epoch so far.")
        raise
    if was_finished:
        print(f"{out} is finished already.")
        return
    if encoder.training and not console.quiet:
        print_summary(console, encoder.training, source, out)


def print_summary(console: Console, training: "Training", source: str, out: Path) -> None:
    from orbithash.encoders.encoding import read_unreadable
    from orbithash.encoders.runs.run_folder import UNREADABLE

    console.print(summary(training))
    if n_unreadable := len(read_unreadable(out / UNREADABLE)):
        console.print(f"{n_unreadable} images could not be read, listed in:")
        print(f"  {out / UNREADABLE}")
    if training.record.labels == "none":
        console.print("Next, index images to search:", style="bold")
        command = ["orbithash", "index", str(out), source, "--out", f"{out}.orbit"]
    else:
        console.print("Next, score it:", style="bold")
        command = ["orbithash", "evaluate", str(out), source, "--out", f"{out}-report"]
    print(f"  {shlex.join(command)}")


def summary(training: "Training") -> str:
    best = training.best_epoch()
    if best is None:
        return f"Fitted in {training.seconds:.1f} s."
    done = f"{len(training.history)} epochs in {training.seconds:.1f} s"
    if len(training.history) < training.record.settings.get("epochs", 0):
        done += ", ended early"
    if best.validation_map is None:
        return f"{done}; kept the last."
    return f"{done}; kept epoch {best.number + 1}, validation MAP {best.validation_map:.4f}."


def method_options(pairs: list[str], margin: float | None = None) -> dict[str, Any]:
    """Parse NAME=VALUE pairs: numbers, true and false as such, anything else as text.

    >>> method_options(["gamma=3", "reduction=mean"], margin=4.0)
    {'gamma': 3, 'reduction': 'mean', 'margin': 4.0}
    """
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"--option {pair} is not NAME=VALUE")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options if margin is None else {**options, "margin": margin}


def share_or_names(text: str) -> float | list[str]:
    """Parse --hold-out-classes: a number with a point is a share.

    >>> share_or_names("0.5"), share_or_names("wren, gull"), share_or_names("3")
    (0.5, ['wren', 'gull'], ['3'])
    """
    try:
        if "." in text:
            return float(text)
    except ValueError:  # names may have points, such as 195.Carolina_Wren
        pass
    return [name.strip() for name in text.split(",")]


def is_other_process() -> bool:
    """Whether this is a torchrun process other than rank 0."""
    import os

    return os.environ.get("RANK", "0") != "0"
