"""A progress bar over images or rows, for everything that encodes."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from orbithash.encoders.encoder import Progress as Report
from orbithash.encoders.encoder import no_progress


@contextmanager
def reporting(progress: bool | Report | None) -> Iterator[Report]:
    """Yield the given function, or one that shows a bar: by default in a terminal."""
    if callable(progress):
        yield progress
    elif progress or (progress is None and sys.stdout.isatty()):
        with progress_bar(Console()) as report:
            yield report
    else:
        yield no_progress


@contextmanager
def progress_bar(console: Console) -> Iterator[Report]:
    """Show a bar over images, with their number per second."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        ImagesPerSecond(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("Images", total=None, visible=False)

        def report(done: int, total: int) -> None:
            if bar.tasks[task].total is None:
                # Images of an earlier, resumed call must not count for the speed of this one.
                bar.reset(task, completed=done, total=total, visible=True)
            bar.update(task, completed=done)

        yield report


class ImagesPerSecond(ProgressColumn):
    """The current speed, once it is known."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f}/s" if task.speed else "", style="progress.data.speed")
