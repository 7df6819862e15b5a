"""`orbithash train`: an encoder from labelled features."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from orbithash.cli.output import whole_folder
from orbithash.cli.training_progress import fitting_progress, training_progress
from orbithash.errors import InputError

if TYPE_CHECKING:
    from orbithash.training import Trained, TrainingSettings


def train(
    source: Annotated[
        str, typer.Argument(help="Features with labels and split: an .npz, as `features` writes.")
    ],
    bits: Annotated[int, typer.Option(help="Length of the codes, 4 to 1024.")],
    out: Annotated[Path, typer.Option(help="Folder for the run.")],
    method: Annotated[
        str, typer.Option(help="A loss or a hasher; see: orbithash list.")
    ] = "order-aware",
    preset: Annotated[
        str, typer.Option(help="Settings to begin with: default, or paper for the paper's recipe.")
    ] = "default",
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
    epochs: Annotated[int | None, typer.Option(help="Passes over the training rows.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows per step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Rate of the first step.")] = None,
    hidden: Annotated[
        int | None, typer.Option(help="Units of the hidden layer; 0 for a linear head.")
    ] = None,
    memory: Annotated[
        int | None, typer.Option(help="Recent embeddings that lengthen the rank lists.")
    ] = None,
    validation: Annotated[
        float | None,
        typer.Option(help="Share of the training rows held out to choose the best epoch; 0: none."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier run.")] = False,
) -> None:
    """Learn binary codes from labelled features, and save the encoder with all that made it.

    Queries are never looked at: the best epoch is chosen on training rows held out.
    """
    from orbithash.encoders.run_folder import (  # --help must not wait for torch
        CONTENTS,
        LOG,
        RunRecord,
        load,
        versions,
        write_run,
    )

    options = method_options(option or [])
    if margin is not None:
        options["margin"] = margin
    settings = chosen_settings(
        preset,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        hidden=hidden,
        memory=memory,
        validation=validation,
    )
    with whole_folder(out, contents=CONTENTS, force=force) as folder:
        from orbithash.data import read_features
        from orbithash.evaluation import mean_average_precision
        from orbithash.losses import LOSSES
        from orbithash.training import log_to, train_on_features

        data = read_features(features_file(source))
        start = load(init) if init is not None else None
        log = log_to(folder / LOG)
        console = Console()
        progress = training_progress if method in LOSSES else fitting_progress
        with progress(console, method, settings.epochs) as show:
            trained = train_on_features(
                data,
                method,
                bits,
                settings,
                score=mean_average_precision,
                options=options,
                init=start,
                seed=seed,
                after_epoch=both(log, show),
            )
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
        )
        write_run(folder, trained.encoder, record, outcome(trained))
    console.print(summary(trained))
    console.print("Next, score it:", style="bold")
    print(f"  orbithash evaluate {out} {source} --out {out}-report")


def features_file(source: str) -> Path:
    if Path(source).suffix.lower() != ".npz":
        raise InputError(
            f"{source} is not a features file; make one with: orbithash features {source} "
            "--backbone NAME --weights FILE --out FEATURES.npz"
        )
    return Path(source)


def chosen_settings(preset: str, **given: Any) -> "TrainingSettings":
    """The preset with what was given on the command line in its place.

    A batch of another size brings its own learning rate, unless one was given.
    """
    from orbithash.training import PRESETS

    if preset not in PRESETS:
        raise InputError(f"there is no preset {preset!r}; choose from {', '.join(PRESETS)}")
    given = {name: value for name, value in given.items() if value is not None}
    settings = replace(PRESETS[preset], **given)
    if "batch_size" in given and "learning_rate" not in given:
        return replace(PRESETS[preset].for_batches_of(settings.batch_size), **given)
    return settings


def method_options(pairs: list[str]) -> dict[str, Any]:
    """NAME=VALUE pairs: numbers, true and false as such, anything else as text.

    >>> method_options(["gamma=3", "reduction=mean"])
    {'gamma': 3, 'reduction': 'mean'}
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
    return options


def outcome(trained: "Trained") -> dict[str, Any]:
    """What the run's scores.json holds: how training went, nothing of the queries."""
    best = trained.best_epoch()
    return {
        "validation_map": best.validation_map if best else None,
        "best_epoch": best.number if best else None,
        "epochs": len(trained.history),
        "seconds": round(trained.seconds, 3),
    }


def summary(trained: "Trained") -> str:
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
