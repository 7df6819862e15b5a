"""`orbithash reproduce`: tables of the paper beside what it prints."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from orbithash.cli.options import code_lengths, visible
from orbithash.errors import InputError
from orbithash.files import make_folder

if TYPE_CHECKING:
    from orbithash.experiments.tables.plan import PlannedRun
    from orbithash.experiments.tables.results import Results
    from orbithash.experiments.tables.sources import SourceProgress, TableSource
    from orbithash.experiments.tables.workers import RunEvent, RunListener, TimeLeft


def reproduce_command(
    tables: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE...",
            help="main, ablation, selection, gamma, curves, claim, shallow, asymmetric, nested or "
            "unseen; several share runs.",
        ),
    ],
    source: Annotated[
        list[str],
        typer.Option(
            help="Features (.npz) or images, may be repeated; NAME=SOURCE gives it a name, and "
            "voc2007…, cub200_2011…, stanford_dogs… or sun397… bring the paper's figures."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for runs and tables; finished runs are kept.")],
    bits: Annotated[
        str | None,
        typer.Option(help="Code lengths, such as 16,32,48,64; default: the table's."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of every method, from seeds 0, 1, …")] = 5,
    tune: Annotated[
        str,
        typer.Option(
            help="How much of the network learns from images: whole (hours), without a head first, "
            "or head (minutes)."
        ),
    ] = "whole",
    frozen: Annotated[bool, typer.Option("--frozen", help="The same as --tune head.")] = False,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes over the training rows, for every loss.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at once, sharing the cores.")] = 1,
    backbone: Annotated[
        str,
        typer.Option(
            help="Network that is trained on images or extracts features; see: orbithash list."
        ),
    ] = "googlenet",
    weights: Annotated[
        Path | None, typer.Option(help="The network's weights, a safetensors file.")
    ] = None,
    views: Annotated[
        int,
        typer.Option(
            min=0,
            help="With --tune head: further views of each training image, as in `orbithash train`.",
        ),
    ] = 4,
) -> None:
    """Reproduce tables of the paper, beside its printed figures.

    Example: orbithash reproduce main --source voc2007.npz --bits 16,32 --seeds 1 --out tables

    Every run has its own folder: an interrupted command continues when it is repeated, and finished
    runs are not repeated. Queries choose nothing; they are searched at the end of a run.
    """
    lengths = None if bits is None else code_lengths(bits, "--bits")
    if tune not in ("head", "whole"):
        raise InputError(f"there is no tune {tune!r}; choose from head, whole")
    from orbithash.experiments.reproduce import make_plan, reproduce_tables, table_folder
    from orbithash.experiments.tables.plan import plan_runs
    from orbithash.experiments.tables.run import find_finished
    from orbithash.experiments.tables.sources import NetworkSpec, prepare_sources
    from orbithash.experiments.tables.spec import read_table  # --help must not wait for torch
    from orbithash.experiments.tables.workers import TimeLeft
    from orbithash.losses import LOSSES

    declared = [read_table(name) for name in dict.fromkeys(tables)]
    for table in declared:  # before images are described, which may take an hour
        plan_runs(table, (), bits=lengths, seeds=(), epochs=epochs)
    make_folder(out)
    console = Console()
    with extraction_progress(console) as report:
        sources = prepare_sources(
            source,
            out,
            network=NetworkSpec(backbone, weights, n_views=views),
            frozen=frozen or tune == "head",
            hashers=any(row.spec.method not in LOSSES for table in declared for row in table.rows),
            progress=report,
        )
    plan = make_plan(declared, sources, bits=lengths, n_seeds=seeds, epochs=epochs)
    runs = plan.runs()
    time_left = TimeLeft(runs, jobs=jobs)
    for run in runs:
        if done := find_finished(run, out):
            time_left.finish(run, done.seconds)
    try:
        with run_progress(console, len(runs), time_left) as on_event:
            given = shlex.join(["orbithash", *sys.argv[1:]])
            made = reproduce_tables(plan, out, jobs=jobs, on_event=on_event, command=given)
    except KeyboardInterrupt:
        console.print("Stopped; repeat the command to continue.")
        raise
    for results in made.results:
        for one_source in results.sources:  # all side by side would not fit a terminal
            console.print(as_table(results, one_source))
    console.print("Tables with the paper's figures, the tests and the pictures:", style="bold")
    for results in made.results:
        print(f"  {table_folder(results, out) / 'report.html'}")
    if made.failures:
        for failed, reason in made.failures.items():
            print(visible(f"orbithash: {failed} failed: {reason}"), file=sys.stderr)
        raise typer.Exit(1)


@contextmanager
def extraction_progress(console: Console) -> Iterator["SourceProgress"]:
    """Show a bar over the images of each source, from its first report on."""
    from orbithash.encoders.progress import progress_bar  # --help must not wait for torch

    with ExitStack() as stack:
        bars = {}

        def report(name: str, done: int, total: int) -> None:
            if name not in bars:
                stack.close()  # the bar of the source before
                bars[name] = stack.enter_context(progress_bar(console))
            bars[name](done, total)

        yield report


@contextmanager
def run_progress(console: Console, total: int, time_left: "TimeLeft") -> Iterator["RunListener"]:
    """A bar over the runs, with those under way and the time that is left."""
    columns = (
        TextColumn("Runs"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.fields[under_way]}", style="dim"),
    )
    with Progress(*columns, console=console) as bar:
        done = total - len(time_left.waiting)
        task = bar.add_task("runs", total=total, completed=done, left="", under_way="")
        under_way: dict[str, int] = {}

        def on_event(run: "PlannedRun", event: "RunEvent") -> None:
            under_way[str(run)] = event.epochs
            time_left.advance(run, event.epochs)
            if event.is_end:
                del under_way[str(run)]
                bar.advance(task)
            if event.seconds is not None:
                time_left.finish(run, event.seconds)
            elif event.failure is not None:
                time_left.discard(run)
            seconds = time_left.estimate()
            bar.update(
                task,
                left="" if seconds is None else f"about {in_words(seconds)} left",
                under_way=" · ".join(
                    f"{name}, epoch {epoch}" if epoch else name for name, epoch in under_way.items()
                ),
            )

        yield on_event


def in_words(seconds: float) -> str:
    """A time as one would say it.

    >>> in_words(42), in_words(1000), in_words(9000)
    ('42 s', '17 min', '2 h 30 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def as_table(results: "Results", source: "TableSource") -> Table:
    """The means on one source, the best of each column in bold."""
    title = f"{results.table.title}, {source.display_name}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    columns = [column for column in results.columns if column[0] == source.name]
    table.add_column("method", no_wrap=True)
    for _, n_bits in columns:
        table.add_column(f"{n_bits} bits", justify="right")
    for place, row in enumerate(results.table.rows):
        if place and row.in_paper != results.table.rows[place - 1].in_paper:
            table.add_section()
            table.add_row("[dim]not in the paper[/dim]")
        cells = [row.display_name]
        for column in columns:
            cell = results.cells.get((row.name, column))
            figure = f"{cell.map.mean:.4f}" if cell else "–"
            if cell and len(cell.maps) < len(results.seeds):
                figure += f" ({len(cell.maps)} of {len(results.seeds)} seeds)"
            best = results.best(column) == row.name
            cells.append(f"[bold]{figure}[/bold]" if best else figure)
        table.add_row(*cells)
    return table
