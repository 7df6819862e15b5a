"""`orbithash tune`: a search over settings on validation rows."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from orbithash.errors import InputError
from orbithash.files import locked_folder, make_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbithash.experiments.tune import TuningTrial


def tune_command(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE...", help="Features (.npz); several are tuned jointly."),
    ],
    bits: Annotated[int, typer.Option(help="Length of the codes, 4 to 1024.")],
    out: Annotated[Path, typer.Option(help="Folder for the study; an existing one is continued.")],
    method: Annotated[str, typer.Option(help="A loss; see: orbithash list.")] = "order-aware",
    trials: Annotated[int, typer.Option(min=1, help="Settings to try in all.")] = 30,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of every trial and source.")] = 1,
    validation: Annotated[
        float, typer.Option(help="Share of the training rows held out to score.")
    ] = 0.2,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Most epochs of a trial; default: as train.")
    ] = None,
) -> None:
    """Search for settings of training: margin, learning rate, reduction, dropout, epochs.

    Example: orbithash tune photos.npz --bits 32 --trials 30 --out study

    Only training rows are used: some are held out as queries for the others. The first trial has
    the default settings. An interrupted command continues when it is repeated.
    """
    for source in sources:
        if Path(source).suffix.lower() != ".npz":
            raise InputError(
                f"{source} is not a features file; extract one with: orbithash features {source} "
                "--backbone NAME --out FEATURES.npz"
            )
    from orbithash.data import read_features  # --help must not wait for torch
    from orbithash.experiments.tables.sources import features_source, parse_sources
    from orbithash.experiments.tune import (
        BEST,
        SettingsSearch,
        best_tuning_trial,
        search_settings,
    )
    from orbithash.training import PRESETS

    named = [(name, Path(place)) for name, place in parse_sources(sources)]
    data = [read_features(file) for _, file in named]
    search = SettingsSearch(
        method=method,
        n_bits=bits,
        sources=tuple(features_source(*of, rows) for of, rows in zip(named, data, strict=True)),
        seeds=tuple(range(seeds)),
        validation=validation,
        epochs=epochs or PRESETS["default"].epochs,
    )
    console = Console()
    make_folder(out)
    try:
        with locked_folder(out), trial_progress(console, trials) as show:
            done = search_settings(search, data, out, n_trials=trials, after_trial=show)
    except KeyboardInterrupt:
        console.print("Stopped; repeat the command to continue.")
        raise
    console.print(as_table(done, best_tuning_trial(done)))
    console.print("Train with the best:", style="bold")
    print(f"  orbithash train {named[0][1]} --bits {bits} --method {method} ", end="")
    print(f"--settings {out / BEST} --out RUN")


@contextmanager
def trial_progress(console: Console, total: int) -> "Iterator[Callable[[list[TuningTrial]], None]]":
    columns = (
        TextColumn("Trials"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[best]}", style="dim"),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("trials", total=total, best="")

        def show(trials: "list[TuningTrial]") -> None:
            best = max(trial.map for trial in trials)
            bar.update(task, completed=len(trials), best=f"best validation MAP {best:.4f}")

        yield show


def as_table(trials: "list[TuningTrial]", best: "TuningTrial") -> Table:
    """The best trial beside the first, which has the defaults."""
    table = Table(
        title=f"Validation MAP, the best of {len(trials)} trials",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("")
    table.add_column("defaults", justify="right")
    table.add_column("best", justify="right")
    first = trials[0]
    for source in best.maps:
        table.add_row(source, f"{first.maps[source]:.4f}", f"{best.maps[source]:.4f}")
    for name in best.values:
        table.add_row(name, *(shown(trial.values[name]) for trial in (first, best)))
    return table


def shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
