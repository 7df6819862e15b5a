"""`orbithash demo`: from training to a report, on images that come with the install."""

import importlib.util
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from orbithash.cli.serve import NEEDED
from orbithash.files import output_folder

if TYPE_CHECKING:
    from orbithash.experiments.comparison import Comparison
    from orbithash.experiments.demo import Progress as Report

CONTENTS = frozenset(
    {"report.html", "scores.json", "codes", "images", "digits.orbit"}
)  # what run_demo writes


def demo_command(
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("demo-report"),
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier report.")] = False,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 10, help="Determines the split and the weights.")
    ] = 0,
) -> None:
    """Train, encode, store, search and score on handwritten digits; takes one to two minutes.

    Example: orbithash demo --out demo-report

    Compares codes of 16 and 32 bits from two losses and all shallow methods, prints their mean
    average precision, and writes a report to open in a browser and an index to search.
    """
    console = Console()
    with output_folder(out, contents=CONTENTS, force=force) as folder:
        from orbithash.experiments.demo import run_demo  # --help must not wait for torch

        with progress_bars(console) as report:
            comparison = run_demo(folder, final=out, seed=seed, progress=report)
    console.print(as_table(comparison))
    for line in comparison.skipped:
        console.print(f"Left out: {line}")
    console.print(
        "Expected MAP ± standard deviation over runs, and the lowest and highest MAP\n"
        "over all orders of images at equal distance. The report explains all of it.\n",
        style="dim",
    )
    # Plain print: a long path stays whole and can be copied.
    console.print("Open the report in a browser:", style="bold")
    print(f"  {out.absolute() / 'report.html'}")
    console.print("Search the digits on a page in the browser:", style="bold")
    if any(importlib.util.find_spec(package) is None for package in NEEDED):
        print("  pip install 'orbithash[serve]'")
    print(f"  {command()} serve {shlex.quote(str(out / 'digits.orbit'))}")


def command() -> str:
    """Return how to call orbithash in this shell."""
    if shutil.which("orbithash") is not None:
        return "orbithash"
    installed = Path(sys.executable).with_name("orbithash")
    return shlex.quote(str(installed)) if installed.exists() else f"{sys.executable} -m orbithash"


@contextmanager
def progress_bars(console: Console) -> Iterator["Report"]:
    """Show one bar per stage, from the start of the stage."""
    columns = (
        TextColumn("{task.description:<26}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bars:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done)

        yield report


def as_table(comparison: "Comparison") -> Table:
    """Return methods as rows and code lengths as columns, with the best of each in bold."""
    table = Table(title="MAP on handwritten digits", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("method", no_wrap=True)
    for n_bits in comparison.code_lengths():
        table.add_column(f"{n_bits} bits", justify="right", no_wrap=True)
        table.add_column("bounds", style="dim", no_wrap=True)
    for method in comparison.methods():
        cells = [method]
        for n_bits in comparison.code_lengths():
            outcome = comparison.of(method, n_bits)
            if outcome is None:
                cells += ["–", ""]
                continue
            lowest, highest = outcome.map_bounds
            figure = f"{outcome.map:.3f} ± {outcome.map_spread:.3f}"
            best = outcome is comparison.best(n_bits)
            cells += [f"[bold]{figure}[/bold]" if best else figure, f"{lowest:.3f} … {highest:.3f}"]
        table.add_row(*cells)
    return table
